"""The Celery application: three roles (control, jobs, spark), strict priorities, 0 first."""

from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import heartbeat_sent

from queues import environment as variables

variables.PROCESS.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("weir")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["workers"])


@heartbeat_sent.connect
def touch_heartbeat_file(**_: Any) -> None:
    """A health check that starts Celery to ask would cost more than an idle worker."""
    if path := variables.HEARTBEAT_FILE.text():
        Path(path).touch()
