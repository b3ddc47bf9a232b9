"""Files with external names: paths confined to their folder, and CSV without formulas."""
