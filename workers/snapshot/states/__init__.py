"""One evaluated state per subject: its thresholds, start time, and problem in a sentence."""
