"""Tests of `console.connections`."""
