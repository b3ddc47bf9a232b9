"""Tests of what is promised about security."""
