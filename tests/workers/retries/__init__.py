"""Tests of retry plans."""
