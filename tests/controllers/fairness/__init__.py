"""Tests of `controllers.fairness`."""
