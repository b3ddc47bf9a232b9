"""API requests and responses: authentication, formats, schemas, and errors."""
