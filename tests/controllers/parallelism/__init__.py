"""Tests of `controllers.parallelism`."""
