"""Alerts, their rules and receivers, silences, and the review."""
