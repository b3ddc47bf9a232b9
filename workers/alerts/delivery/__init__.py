"""Delivery: who receives a message, and how it gets there."""
