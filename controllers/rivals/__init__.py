"""Baselines: other rules and laws to compare with."""
