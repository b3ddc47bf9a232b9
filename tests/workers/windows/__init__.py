"""Planned windows: their recurrence in local time, their scope, and their effects."""
