"""The commands of manage.py from this package."""
