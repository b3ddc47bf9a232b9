"""What every page has: its frame, its actions, its lists, and its view of the past."""
