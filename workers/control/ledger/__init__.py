"""The ledger: every decision with its complete basis, written, judged, replayed, and searched."""
