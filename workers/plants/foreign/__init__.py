"""Adapters for attached plants, behind the same interface."""
