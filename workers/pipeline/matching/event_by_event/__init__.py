"""The interpreter: any pattern, one event after the other."""
