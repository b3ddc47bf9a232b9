"""Tests of `workers.pipeline.intra_event`."""
