"""Tests of `workers.pipeline.inter_event`."""
