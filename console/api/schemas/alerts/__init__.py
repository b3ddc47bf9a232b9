"""Answers about alerts, receivers, and service levels."""
