"""Tests of `console.assistants`."""
