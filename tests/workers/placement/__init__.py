"""Tests of `workers.placement`."""
