"""Logs by trace, and metrics."""
