"""Tests of `console.live`."""
