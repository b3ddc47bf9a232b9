"""Queues: backlog, remedy ladder, and dead letters."""
