"""Shared code of manage.py's commands."""
