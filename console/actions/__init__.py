"""What people do, authorised and audited: one way for pages, API and commands."""
