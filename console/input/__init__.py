"""External input, read and checked before any other code sees it."""
