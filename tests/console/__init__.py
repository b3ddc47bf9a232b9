"""Tests of `console`."""
