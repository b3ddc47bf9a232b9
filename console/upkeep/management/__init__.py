"""What manage.py finds of this room."""
