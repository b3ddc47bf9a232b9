"""Tests of `console.actions`."""
