"""Tests of `workers.pipeline.status`."""
