"""Weekly reports on a page and by email: service levels, incidents, and changes."""
