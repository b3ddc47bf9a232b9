"""The beat's own Celery application: it sends tasks by name and imports none, for a third of the memory."""

from celery.signals import beat_init

from console.celery import application, keep_connections

app = application(set_as_current=False)
beat_init.connect(keep_connections)
