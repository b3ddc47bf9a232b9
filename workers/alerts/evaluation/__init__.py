"""Rules against the evidence: which alerts begin and end, and who is notified."""
