"""The status of an application."""
