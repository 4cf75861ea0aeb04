"""Predictive GPU health and anomaly detection from the history Prometheus already holds."""

__version__ = "0.1.0"
