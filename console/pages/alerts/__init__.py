"""Alerts, rules, receivers, silences, the alert review, and service levels."""
