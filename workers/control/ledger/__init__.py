"""The ledger of decisions: write, evaluate, replay, and search."""
