"""The API: its own document describes it."""
