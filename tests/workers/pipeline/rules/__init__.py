"""Tests of `workers.pipeline.rules`."""
