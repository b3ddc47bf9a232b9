"""One evaluated state a subject: its thresholds, since when, and what is wrong in a sentence."""
