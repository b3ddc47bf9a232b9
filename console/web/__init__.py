"""Processing of every request: headers, compression, proxies, request IDs, and problem documents."""
