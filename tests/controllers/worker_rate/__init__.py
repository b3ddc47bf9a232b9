"""Tests of `controllers.worker_rate`."""
