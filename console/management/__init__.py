"""Shared code of the commands of manage.py."""
