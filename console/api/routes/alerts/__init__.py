"""Alerts, their incidents, and their receivers."""
