"""The Celery application: three roles (control, jobs, spark), strict priorities, 0 first."""

from celery import Celery

from queues import environment as variables

variables.PROCESS.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("weir")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["workers"])
