"""How many tasks each operator has."""
