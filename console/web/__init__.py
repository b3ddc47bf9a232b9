"""Around every request: headers, compression, proxies, request ids, problem documents."""
