"""The processes of a worker host: their number, and their completed work."""
