"""Tests of `queues.segments`."""
