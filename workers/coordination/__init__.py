"""Shared infrastructure: leases, connections, data freshness, and keyset paging."""
