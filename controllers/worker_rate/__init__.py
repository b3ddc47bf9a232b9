"""The number of workers that start at one container."""
