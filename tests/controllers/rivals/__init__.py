"""Tests of `controllers.rivals`."""
