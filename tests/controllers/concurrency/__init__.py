"""Tests of `controllers.concurrency`."""
