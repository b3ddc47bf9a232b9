"""Alerts: rules, conditions, delivery, and records of responses."""
