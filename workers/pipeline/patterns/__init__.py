"""Patterns: their conditions, their automata, the graph that connects them, and load shedding."""
