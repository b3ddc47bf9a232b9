"""Dispatch: admits entries and assigns them to replicas; the queue of results."""
