"""Tests of `console.storage`."""
