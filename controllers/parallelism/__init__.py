"""Parallelism: how many tasks each operator has."""
