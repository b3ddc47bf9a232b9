"""The second tier: events together, by operators, to complex events."""
