"""Service levels: what is promised, how much of each minute kept it, and the error budget that is left."""
