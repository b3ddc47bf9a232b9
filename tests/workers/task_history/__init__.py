"""Tests of the task history."""
