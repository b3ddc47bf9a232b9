"""Tests of `workers.plants`."""
