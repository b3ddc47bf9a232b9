"""How it is decided. Pure: no Django, Celery, Redis or Spark."""
