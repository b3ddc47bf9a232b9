"""Dispatch: admits entries, divides them, and assigns them to replicas."""
