"""Tests of `workers.pipeline.matching`."""
