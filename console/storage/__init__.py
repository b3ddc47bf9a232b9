"""Storage of the console: sealed secrets, sessions, append-only tables, and database limits."""
