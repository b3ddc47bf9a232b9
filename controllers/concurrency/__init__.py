"""How many processes the pool of a worker host has."""
