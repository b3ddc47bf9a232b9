"""The beat as a thread of the control worker. On one machine, this saves a process with its connections and memory.

`WEIR_CONTROL_BEAT` selects this mode, and `./run` sets it. The control worker runs the tasks that the beat sends, so a
separate beat would add no availability.
"""

import logging
import threading
from typing import Any

from celery import Celery
from celery.beat import Service

from common import environment as variables
from common.own_process import watch
from workers.documents.hosts import parse_role

logger = logging.getLogger(__name__)
ROLE = "control"
STOP_SECONDS = 3.0  # the schedule sleeps for a second at most


class BeatThread:
    """A schedule that sends its tasks from a thread."""

    def __init__(self, app: "Celery[Any]") -> None:
        self._service = Service(app, scheduler_cls=app.conf.beat_scheduler)
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)
        self._stopping = False

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop sending tasks, and store when each task was last sent."""
        self._stopping = True
        self._service.stop()
        self._thread.join(STOP_SECONDS)

    def detect_fault(self) -> str | None:
        """Return why this process must end, so that its supervisor restarts it; None while the beat runs."""
        return None if self._stopping or self._thread.is_alive() else "no longer runs the beat"

    def _run(self) -> None:
        try:
            self._service.start()
        except Exception:
            logger.exception("The beat failed.")


def build_beat(app: "Celery[Any]", hostname: str) -> BeatThread | None:
    """Return the beat of a control worker if the environment requests it; None for all other workers."""
    if not variables.CONTROL_BEAT.is_on() or parse_role(hostname) != ROLE:
        return None
    return BeatThread(app)


def start_beat(sender: Any, **_: object) -> None:
    """Handle the signal `worker_ready`, which is sent again after the worker has reconnected."""
    if hasattr(sender.controller, "weir_beat"):
        return
    if (beat := build_beat(sender.app, sender.hostname)) is not None:
        sender.controller.weir_beat = beat
        beat.start()
        watch(beat.detect_fault)


def stop_beat(sender: Any, **_: object) -> None:
    """Handle the signal `worker_shutdown`."""
    if (beat := getattr(sender, "weir_beat", None)) is not None:
        beat.close()
