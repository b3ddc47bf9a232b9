"""Tests of `workers.pipeline.events`."""
