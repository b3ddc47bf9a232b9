"""Service levels: what is promised, how much of each minute kept it, and what is left to miss."""
