"""The control laws. Pure Python: no Django, Celery, Redis, or Spark."""
