"""The plant: overview, nodes, workers, plans, and attached plants."""
