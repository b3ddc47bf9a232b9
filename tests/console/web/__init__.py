"""What every answer of the console passes, whatever its page."""
