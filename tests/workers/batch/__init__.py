"""Tests of `workers.batch`."""
