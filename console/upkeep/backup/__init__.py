"""Backup and restore: a plant as one file, with its database, its servers' data, and its folder."""
