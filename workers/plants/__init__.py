"""The port to any plant, and ours behind it."""
