"""The task history: search, the page of a task, and groups of failures."""
