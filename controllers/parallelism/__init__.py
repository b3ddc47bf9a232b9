"""Parallelism: the number of tasks of each operator."""
