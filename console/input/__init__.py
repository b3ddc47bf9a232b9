"""External input, which is read and checked before any other code sees it."""
