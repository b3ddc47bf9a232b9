"""Finding matches: one exact matcher a kind of pattern."""
