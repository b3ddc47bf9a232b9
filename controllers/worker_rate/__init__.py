"""How many workers start at one container."""
