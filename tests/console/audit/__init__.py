"""Tests of `console.audit`."""
