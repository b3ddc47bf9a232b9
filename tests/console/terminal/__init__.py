"""Tests of `console.terminal`."""
