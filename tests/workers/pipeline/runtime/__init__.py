"""Tests of `workers.pipeline.runtime`."""
