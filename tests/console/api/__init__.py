"""Tests of `console.api`."""
