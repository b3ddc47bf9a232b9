"""Tests of `controllers.baselines`."""
