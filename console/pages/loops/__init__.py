"""Control loops: what they do and why, overrides, and what they would do."""
