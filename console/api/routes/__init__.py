"""The routes of the API, with one module per area."""
