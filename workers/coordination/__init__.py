"""What processes share: leases, connections, throttling, the freshness of data, paging by key."""
