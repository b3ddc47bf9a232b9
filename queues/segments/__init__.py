"""Segments, which hold one queue's events on one node: append, claim, acknowledge, and dead-letter."""
