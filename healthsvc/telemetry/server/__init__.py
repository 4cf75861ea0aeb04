"""Asking a server: one with Prometheus' API, of any flavour."""
