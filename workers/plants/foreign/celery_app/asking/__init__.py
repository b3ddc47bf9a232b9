"""Requests to the workers of an app: events of tasks, and orders that late workers missed."""
