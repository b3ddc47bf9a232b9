"""Files with names from outside: paths that stay inside their folder, and CSV without formulas."""
