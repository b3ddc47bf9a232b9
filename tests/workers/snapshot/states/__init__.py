"""Tests of `workers.snapshot.states`."""
