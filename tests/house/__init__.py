"""Tests of the house itself: that a newcomer finds things where they belong."""
