"""Alerts: what is worth waking somebody for, and what was done about it."""
