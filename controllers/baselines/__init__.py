"""Baselines: other rules and laws that a law is compared with."""
