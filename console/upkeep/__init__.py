"""Maintenance of an installation: checks with remedies, support bundles, and backups."""
