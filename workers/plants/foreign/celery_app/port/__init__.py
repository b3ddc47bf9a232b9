"""A Celery app behind the plant interface, and the inspection of one before it is registered."""
