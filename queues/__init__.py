"""What flows, and where it waits: blocks of events, their segments, and the nodes that hold them."""
