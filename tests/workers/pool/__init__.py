"""Tests of `workers.pool`."""
