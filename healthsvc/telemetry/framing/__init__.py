"""From samples of any origin to a uniform grid, and from the grid to a window."""
