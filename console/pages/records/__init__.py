"""Records: ledger, audit log, and timeline."""
