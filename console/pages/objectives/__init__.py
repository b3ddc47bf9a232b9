"""Service levels: what is promised, what is left to miss of it, and what burnt it."""
