"""Tests of `workers.consumer`."""
