"""What labels say: which GPU a series is of, where it stands, who holds it."""
