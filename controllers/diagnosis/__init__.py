"""Diagnosis of faults: which change probably caused one, and what is different during it."""
