"""Tests of console.display."""
