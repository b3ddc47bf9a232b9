"""What both tiers share: the processing of a batch, the result queue between them, and the state."""
