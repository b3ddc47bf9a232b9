"""What was recorded: ledger, audit, timeline."""
