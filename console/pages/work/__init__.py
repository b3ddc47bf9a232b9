"""Batch work: tasks and the lab."""
