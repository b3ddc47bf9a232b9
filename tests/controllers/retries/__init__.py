"""Tests of `controllers.retries`."""
