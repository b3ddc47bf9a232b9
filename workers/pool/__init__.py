"""The processes of a worker host: how many there are, and what they have completed."""
