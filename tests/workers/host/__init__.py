"""Tests of `workers.host`."""
