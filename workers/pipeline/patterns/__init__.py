"""Patterns, their conditions and automata, the graph between them, and shedding."""
