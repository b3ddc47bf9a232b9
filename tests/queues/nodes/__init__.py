"""Tests of `queues.nodes`."""
