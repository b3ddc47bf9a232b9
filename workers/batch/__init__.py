"""Scheduled tasks: their runs, the chunks of a run, and the workers that process them."""
