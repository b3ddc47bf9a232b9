"""Each Celery worker host tells the control server once a second what it is and how busy it is.

`weir:hosts`: host → {"role", "slots", "busy", "pid", "at"}. `slots` are the pool's real processes, not what
it was started with: a pool may be grown and shrunk while it runs. The report runs on the worker's own
timer: no thread more, one small write a second.
"""

import logging
import os
import time
from typing import Any

import orjson
import redis
from celery import bootsteps, signals
from celery.worker import state

from workers.connections import control_server

KEY = "weir:hosts"
INTERVAL_SECONDS = 1.0
WRITE_TIMEOUT_SECONDS = 0.5
logger = logging.getLogger(__name__)


def role_of(hostname: str) -> str:
    """`jobs@machine` is of role jobs."""
    return hostname.partition("@")[0]


def slots_of(pool: Any) -> int:
    """How many tasks the pool can run at once now."""
    processes = getattr(getattr(pool, "_pool", None), "_pool", None)
    return len(processes) if processes is not None else int(getattr(pool, "num_processes", 1) or 1)


class HostReport(bootsteps.StartStopStep):
    """Starts with the worker's pool and timer, and takes its line off the list when the worker stops."""

    requires = {"celery.worker.components:Pool", "celery.worker.components:Timer"}

    def __init__(self, parent: Any, **options: Any) -> None:
        self._entry: Any = None
        self._control = control_server(WRITE_TIMEOUT_SECONDS)
        self._silent = False
        super().__init__(parent, **options)

    def start(self, parent: Any) -> None:
        self._entry = parent.timer.call_repeatedly(INTERVAL_SECONDS, self._report, (parent,))

    def stop(self, parent: Any) -> None:
        if self._entry is not None:
            self._entry.cancel()
        self._write(lambda: self._control.hdel(KEY, parent.hostname))

    def _report(self, parent: Any) -> None:
        document = orjson.dumps(report(parent.hostname, parent.pool, time.time()))
        self._write(lambda: self._control.hset(KEY, parent.hostname, document))

    def _write(self, write: Any) -> None:
        """A control server that is away is logged once, and must not stop the worker."""
        try:
            write()
            self._silent = False
        except redis.RedisError as error:
            if not self._silent:
                logger.warning("The host report can't be written: %s", error)
            self._silent = True


def report(hostname: str, pool: Any, now: float) -> dict[str, Any]:
    """A host as it is now."""
    return {
        "role": role_of(hostname),
        "slots": slots_of(pool),
        "busy": len(state.active_requests),
        "pid": os.getpid(),
        "at": now,
    }


def install(sender: Any = None, **unused: Any) -> None:
    """Add the step to whichever Celery application starts a worker in this process."""
    signals.celeryd_init.connect(_add_step, weak=False, dispatch_uid="weir-host-report")


def _add_step(instance: Any = None, **unused: Any) -> None:
    instance.app.steps["worker"].add(HostReport)
