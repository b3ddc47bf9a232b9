"""Load shedding, and the remedy ladder that comes before it."""
