"""Patterns as the laws see them: the grammar, what a match needs, and how many matches to expect."""
