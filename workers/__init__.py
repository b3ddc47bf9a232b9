"""What does the work, and closes the loops."""
