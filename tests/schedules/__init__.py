"""The checker of histories, and the parts of random schedules that need no plant."""
