"""The evaluated state of each subject: its thresholds, start time, and problem."""
