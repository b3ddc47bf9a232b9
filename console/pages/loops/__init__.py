"""Control loops: their decisions and reasons, overrides, and predictions."""
