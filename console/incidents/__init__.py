"""Incidents examined: the changes before one, its differences, and the draft of its review."""
