"""Work that a task can do, one job per module."""
