"""Schemas of the API responses in the OpenAPI document, with one area per module."""
