"""Tests of `workers.pipeline.tiers`."""
