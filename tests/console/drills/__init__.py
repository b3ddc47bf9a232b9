"""Drills: scores, judgment of actions, faults that always end, and results."""
