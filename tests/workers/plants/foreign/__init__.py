"""Adapters of plants that others built, each by itself."""
