"""Weir's own state: health, readiness, and metrics for scrapers."""
