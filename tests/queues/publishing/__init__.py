"""Tests of `queues.publishing`."""
