"""The commands of manage.py for whoever keeps an installation."""
