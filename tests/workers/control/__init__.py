"""Tests of `workers.control`."""
