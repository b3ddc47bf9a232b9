"""Patterns for the laws: the grammar, the events that a match needs, and the expected number of matches."""
