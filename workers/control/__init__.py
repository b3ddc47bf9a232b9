"""Control loops: at each tick observe, decide, act, and note it in the ledger."""
