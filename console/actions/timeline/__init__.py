"""What people put on the timeline, and show of it: marks, and links for people without a login."""
