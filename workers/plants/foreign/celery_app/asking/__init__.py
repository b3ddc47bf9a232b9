"""What whoever observes an app asks its workers for: events of tasks, and what they were too late for."""
