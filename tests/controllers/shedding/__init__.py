"""Tests of `controllers.shedding`."""
