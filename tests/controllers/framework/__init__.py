"""Tests of `controllers.framework`."""
