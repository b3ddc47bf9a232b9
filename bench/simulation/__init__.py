"""Deterministic simulation: the real control loops on virtual time, with faults that a seed selects."""
