"""Answers about alerts, who is notified of them, and service levels."""
