"""The parts of every page: its frame, its actions, its lists, and its view of the past."""
