"""Safe files: paths that stay inside their folder, and CSV files without formulas."""
