"""Consumers: a worker claims blocks of one container, handles and acknowledges them, and reports."""
