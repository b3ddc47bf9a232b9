"""Random schedules of faults on a small plant, and the checker of their histories."""
