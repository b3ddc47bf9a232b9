"""Tests of `console.timeline`."""
