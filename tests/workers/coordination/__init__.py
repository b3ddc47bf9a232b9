"""Tests of `workers.coordination`."""
