"""Evaluation of rules: the start and end of alerts, and the notification of receivers."""
