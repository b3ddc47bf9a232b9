"""The audit log: who changed what, why, and from where: a chain of entries, checked and witnessed."""
