"""The API, which its OpenAPI document describes."""
