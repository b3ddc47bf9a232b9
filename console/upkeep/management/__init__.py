"""The commands of manage.py in this package."""
