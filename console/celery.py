"""The Celery application: three roles (control, jobs, spark), strict priorities, 0 first."""

import gc
from typing import Any

from celery import Celery, Task
from celery.signals import (
    before_task_publish,
    heartbeat_sent,
    setup_logging,
    task_prerun,
    worker_before_create_process,
    worker_init,
    worker_process_init,
    worker_ready,
    worker_shutdown,
)
from django.conf import settings
from django.db import close_old_connections, connection

from common import environment as variables
from common import logs, own_process
from console.storage.database_limits import hold_work_limits
from workers.coordination.beat_thread import start_beat, stop_beat
from workers.coordination.celery_worker import PromptConnections, set_expiry, watch_child, watch_pool
from workers.observability.spans import carry, span

variables.PROCESS.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
# Django's checks would import every page, for twice the memory; `manage.py check` runs them.
variables.PROCESS.setdefault("CELERY_SKIP_CHECKS", "1")


class LoggedTask(Task):  # type: ignore[type-arg]
    """A task whose log lines name it; its span belongs to the trace of its sender."""

    abstract = True
    Request = "workers.coordination.celery_worker:TimedRequest"

    def __call__(self, *args: object, **options: object) -> object:
        if self.request.id is None:  # called like a function
            return super().__call__(*args, **options)
        parent = {name: self.request.get(name) for name in ("traceparent", "tracestate")}
        with span(self.name, parent, task=self.request.id):
            return self.run(*args, **options)


def create_application(set_as_current: bool = True) -> "Celery[Any]":
    """Return an application with Weir's settings and broker, without tasks."""
    made = Celery("weir", task_cls=LoggedTask, amqp=PromptConnections, set_as_current=set_as_current)
    made.config_from_object("django.conf:settings", namespace="CELERY")
    return made


app = create_application()
app.autodiscover_tasks(["workers"])
worker_ready.connect(watch_pool)
worker_ready.connect(start_beat)
worker_shutdown.connect(stop_beat)
worker_process_init.connect(watch_child)


@setup_logging.connect
def as_every_process_logs(loglevel: int | None = None, **_: object) -> None:
    """Configure logging as in every process, in place of Celery's own lines."""
    logs.configure_logging(loglevel)


@before_task_publish.connect
def add_trace_headers(headers: dict[str, Any] | None = None, **_: object) -> None:
    """Make the task's span a child of its sender's: a request, a tick, or another task."""
    if headers is not None:
        carry(headers)
        set_expiry(headers)


@worker_init.connect
def keep_connections(**_: object) -> None:
    """Keep database connections open while the database answers, with time limits for locks.

    A process here runs one task after another, and connecting takes as long as a tick's statements.
    """
    hold_work_limits(connection.settings_dict, settings.WEIR_DATABASE_LIMITS)
    connection.settings_dict.update(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True)
    task_prerun.connect(close_old_connections)


@worker_before_create_process.connect
def share_memory(**_: object) -> None:
    """Exclude existing objects from a child's garbage collector. Their pages stay shared with its parent."""
    gc.collect()
    gc.freeze()


@heartbeat_sent.connect
def touch_heartbeat_file(**_: object) -> None:
    """Touch a file for the health check, since starting Celery to ask would cost more than an idle worker."""
    own_process.touch()
