"""Adapters of attached plants, each on its own."""
