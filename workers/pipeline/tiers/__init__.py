"""What both tiers share: the work on a batch, the result queue between them, the state."""
