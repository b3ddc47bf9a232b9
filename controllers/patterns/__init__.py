"""Patterns as the laws see them: the grammar, what a match needs, how many come of it."""
