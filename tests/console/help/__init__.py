"""Tests of Help: its pages, their order, their links."""
