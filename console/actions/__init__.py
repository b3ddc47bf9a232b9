"""User actions, authorized and audited: one implementation for pages, API, and commands."""
