"""Analysis of incidents: earlier changes, differences, and the draft of the review."""
