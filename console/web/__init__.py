"""Processing of every request: headers, compression, proxies, request ids, problem documents."""
