"""Incidents examined: what changed before one, what is different in it, and the draft of its review."""
