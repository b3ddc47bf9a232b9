"""Pool size of a worker host."""
