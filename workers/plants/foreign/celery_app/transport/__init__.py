"""How the broker of a Celery app is spoken to: where it keeps its messages, and what one message may cost."""
