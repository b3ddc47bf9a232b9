"""Tests of `workers.pipeline.declaration`."""
