"""Which node holds how many points of which queue, and which nodes are used at all."""
