"""Incidents examined: what changed before one, what is different in it, its review."""
