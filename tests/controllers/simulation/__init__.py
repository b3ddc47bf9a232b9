"""Tests of `controllers.simulation`."""
