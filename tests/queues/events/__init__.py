"""Tests of `queues.events`."""
