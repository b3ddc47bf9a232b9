"""What a task can do: one job a module."""
