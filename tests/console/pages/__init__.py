"""Tests of `console.pages`."""
