"""What rules can watch."""
