"""Service levels are counted by the minute, whoever dies meanwhile."""
