"""Files that others name or open: paths that stay inside their folder, and CSV without formulas."""
