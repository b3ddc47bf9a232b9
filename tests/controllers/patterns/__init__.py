"""Tests of `controllers.patterns`."""
