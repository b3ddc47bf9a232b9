"""What people put on the timeline, and show of it."""
