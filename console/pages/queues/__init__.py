"""Queues: what waits, the ladder of remedies, dead letters."""
