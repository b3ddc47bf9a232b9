"""Weir's own health: health checks, readiness, and metrics."""
