"""Tests of `workers.pipeline`."""
