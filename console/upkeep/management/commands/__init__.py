"""Upkeep commands of manage.py, for administrators of an installation."""
