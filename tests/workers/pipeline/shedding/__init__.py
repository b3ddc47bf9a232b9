"""Tests of `workers.pipeline.shedding`."""
