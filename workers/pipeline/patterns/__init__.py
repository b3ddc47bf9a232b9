"""Patterns, their conditions and automata, and the graph between them."""
