"""Tests of `queues`."""
