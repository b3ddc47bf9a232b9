"""Evaluation of rules: which alerts start and end, and who is notified."""
