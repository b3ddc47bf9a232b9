"""Tests of `console.pages.loops`."""
