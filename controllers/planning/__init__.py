"""One plan for nodes, workers, tasks, admission, and shedding, in money."""
