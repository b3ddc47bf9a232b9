"""The API, described by its own OpenAPI document."""
