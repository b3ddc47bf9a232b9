"""Matching: one exact matcher for each kind of pattern."""
