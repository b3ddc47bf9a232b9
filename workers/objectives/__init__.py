"""Service levels: objectives, counts of good and bad seconds per minute, and remaining error budgets."""
