"""Shared infrastructure: leases, connections, throttling, data freshness, keyset paging."""
