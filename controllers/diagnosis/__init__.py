"""Faults examined: which change came before one and may have caused it, and what is different in it."""
