"""Tests of `controllers.design`."""
