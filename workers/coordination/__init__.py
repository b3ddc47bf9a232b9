"""Shared infrastructure: leases, connections, throttling, data freshness, and keyset paging."""
