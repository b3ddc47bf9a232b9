"""Alerts: rules, conditions, delivery, and the record of what was done."""
