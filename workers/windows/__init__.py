"""Planned windows: maintenance windows, change freezes, and recurring silences, with their occurrences."""
