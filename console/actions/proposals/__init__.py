"""What waits for a person: plans, tunings, what assistants propose; approved by hash."""
