"""Alerts, their rules and receivers, silences, the review; and service levels."""
