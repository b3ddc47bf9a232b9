"""The plant: overview, nodes, workers, plans, and plants that others built."""
