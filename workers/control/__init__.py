"""Control loops: each tick observes, decides, acts, and records the decision in the ledger."""
