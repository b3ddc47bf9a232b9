"""The Celery application: three roles (control, jobs, spark), strict priorities, 0 first."""

from pathlib import Path
from typing import Any

from celery import Celery, Task
from celery.signals import heartbeat_sent, setup_logging

from queues import environment as variables
from queues import logs

variables.PROCESS.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")


class LoggedTask(Task):  # type: ignore[type-arg]
    """What a task logs says which one it is of."""

    abstract = True

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.request.id is None:  # called like a function
            return super().__call__(*args, **options)
        with logs.about(task=self.request.id):
            return self.run(*args, **options)


app = Celery("weir", task_cls=LoggedTask)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["workers"])


@setup_logging.connect
def as_every_process_logs(loglevel: int | None = None, **_: Any) -> None:
    """In place of Celery's own lines."""
    logs.configure(loglevel)


@heartbeat_sent.connect
def touch_heartbeat_file(**_: Any) -> None:
    """A health check that starts Celery to ask would cost more than an idle worker."""
    if path := variables.HEARTBEAT_FILE.text():
        Path(path).touch()
