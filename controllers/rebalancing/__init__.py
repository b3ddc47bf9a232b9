"""Assignment of queues' points to nodes, and selection of the nodes in use."""
