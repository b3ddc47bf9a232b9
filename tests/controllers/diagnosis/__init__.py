"""Which change came before a fault, and what is different in it."""
