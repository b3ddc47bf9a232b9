"""Tests of the deterministic simulation, of its servers, and of what it finds."""
