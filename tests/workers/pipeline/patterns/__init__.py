"""Tests of `workers.pipeline.patterns`."""
