"""Retries: the retry budget of a destination, and its circuit breaker."""
