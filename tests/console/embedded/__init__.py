"""Tests of `console.embedded`."""
