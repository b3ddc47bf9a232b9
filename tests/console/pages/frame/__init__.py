"""Tests of what every page has around it."""
