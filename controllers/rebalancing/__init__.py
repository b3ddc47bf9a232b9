"""Assignment of queues' points to nodes, and the choice of nodes in use."""
