"""Tests of `queues.control`."""
