"""How the console keeps what it keeps: sealed secrets, sessions, tables that only grow."""
