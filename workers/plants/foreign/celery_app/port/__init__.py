"""A Celery app behind the port of plants, and what an inspection of one finds."""
