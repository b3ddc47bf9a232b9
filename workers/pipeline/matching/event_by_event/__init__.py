"""The interpreter: matches any pattern, event by event."""
