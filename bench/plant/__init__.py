"""A whole plant, started by ./run: what it takes, how it begins, and what it does in hours and under load."""
