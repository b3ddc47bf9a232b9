"""Shared code of both tiers: batch processing, the result queue between the tiers, and the state."""
