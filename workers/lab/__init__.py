"""Experiments: what was simulated, and its series."""
