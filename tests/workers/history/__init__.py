"""Tests of `workers.history`."""
