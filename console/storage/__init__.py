"""How the console stores its data: sealed secrets, sessions, append-only tables, and database limits."""
