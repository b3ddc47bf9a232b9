"""Experiments: the simulated scenarios, and their series."""
