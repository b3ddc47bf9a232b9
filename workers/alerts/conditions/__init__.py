"""Conditions that alert rules can watch, and the evidence that they read."""
