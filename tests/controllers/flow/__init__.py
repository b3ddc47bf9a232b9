"""Tests of `controllers.flow`."""
