"""The only reader of telemetry: sources in, canonical signals on a uniform grid out."""
