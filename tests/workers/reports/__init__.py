"""Tests of `workers.alerts`."""
