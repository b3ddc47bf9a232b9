"""How Weir connects to the broker of a Celery app: where messages are stored, and limits of one message."""
