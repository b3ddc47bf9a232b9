"""Dispatch: admits entries, assigns them to replicas, and queues their results."""
