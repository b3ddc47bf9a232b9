"""Tests of `controllers.simulation.figures`."""
