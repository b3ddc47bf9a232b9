"""Tests of `workers.pipeline.dispatch`."""
