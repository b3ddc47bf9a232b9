"""Tests of `workers.steering`."""
