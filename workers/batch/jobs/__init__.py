"""The jobs that a task can run, one job per module."""
