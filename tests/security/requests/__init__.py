"""What is sent to the console, and what it answers."""
