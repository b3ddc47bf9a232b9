"""Answers of the API: bases of schemas, and routes that declare their answers."""
