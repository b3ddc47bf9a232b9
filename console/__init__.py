"""The web console, its API, and its commands."""
