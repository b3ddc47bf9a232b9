"""Tests of `workers.snapshot`."""
