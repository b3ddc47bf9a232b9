"""The model of the planner, its program, and its plans."""
