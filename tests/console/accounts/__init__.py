"""Tests of `console.accounts`."""
