"""The audit log, which records who changed what, when, why, and from where in a chain of entries."""
