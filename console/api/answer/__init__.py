"""Responses of the API: base classes of schemas, and routes that declare their responses."""
