"""The events of a Celery app as changes of the task history (`workers.task_history`).

Arguments and errors are redacted here, so that no secret reaches the history's memory or tables.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from common.checks import make_storable
from workers.plants.foreign.celery_app.transport import count_of, parse_name, parse_seconds, parse_text
from workers.plants.foreign.redaction import HIDDEN, SHOWN, redact
from workers.task_history.record import SENT, STATES, TaskUpdate
from workers.task_history.recorder import TaskRecorder

# Celery sends 1,024 characters of the arguments and of the result.
MAX_SENT = 1_024
MAX_ID, MAX_ARGUMENTS, MAX_RESULT, MAX_ERROR, MAX_TRACEBACK = 255, 1_100, 300, 500, 4_000
# Celery's marks of what it left out.
SHORTENED = ("...", "…")
NOTHING = ("", "()", "[]", "{}", "None")
BEAT, ONLINE, OFFLINE = "worker-heartbeat", "worker-online", "worker-offline"
BEATS_MISSED = 3


def build_update(
    event: Mapping[str, object], at: float, shown: str = SHOWN, queues: Mapping[str, Sequence[str]] | None = None
) -> TaskUpdate | None:
    """Return what an event says of a task; None if it is not about a task, or invalid.

    at: when it was received, in seconds since 1970. queues: worker → the queues that it consumes.
    """
    group, _, state = parse_name(event.get("type")).partition("-")
    task_id, worker = make_storable(parse_name(event.get("uuid"))), make_storable(parse_name(event.get("hostname")))
    if group != "task" or state not in STATES or not task_id or len(task_id) > MAX_ID:
        return None
    args, kwargs, are_exact = read_arguments(event, shown)
    return TaskUpdate(
        id=task_id,
        state=state,
        at=at,
        time=parse_seconds(event.get("timestamp")),
        worker="" if state == SENT else worker,
        name=make_storable(parse_name(event.get("name"))),
        args=args,
        kwargs=kwargs,
        are_exact=are_exact,
        queue=_find_queue(event, state, worker, queues or {}),
        eta=make_storable(parse_name(event.get("eta"))),
        retries=count_of(event.get("retries")),
        parent=make_storable(parse_name(event.get("parent_id"))),
        root=make_storable(parse_name(event.get("root_id"))),
        run_seconds=parse_seconds(event.get("runtime")),
        result=_redact(parse_text(event.get("result")), MAX_RESULT, shown),
        error=_redact(parse_text(event.get("exception")), MAX_ERROR),
        traceback=_redact_end(parse_text(event.get("traceback"))),
    )


def _find_queue(event: Mapping[str, object], state: str, worker: str, queues: Mapping[str, Sequence[str]]) -> str:
    """Return the queue that the producer names, or the only one that the worker consumes; else ""."""
    if state == SENT:
        return str(make_storable(parse_name(event.get("queue"))))
    consumed = queues.get(worker, ())
    return consumed[0] if len(consumed) == 1 else ""


def read_arguments(event: Mapping[str, object], shown: str) -> tuple[str | None, str | None, bool]:
    """Return the arguments, and whether they are complete and unaltered; None if the event has none."""
    if "args" not in event and "kwargs" not in event:
        return None, None, False
    texts = [parse_text(event.get(key)) for key in ("args", "kwargs")]
    if shown == HIDDEN:
        length = sum(len(text) for text in texts if text not in NOTHING)
        return (f"{length} characters" if length else "", "", False)
    args, kwargs = (_redact(text, MAX_ARGUMENTS) if text not in NOTHING else "" for text in texts)
    are_exact = all(
        kept == text or text in NOTHING for kept, text in zip((args, kwargs), texts, strict=True)
    ) and not any(len(text) >= MAX_SENT or any(mark in text for mark in SHORTENED) for text in texts)
    return args, kwargs, are_exact


def _redact(text: str, longest: int, shown: str = SHOWN) -> str:
    if shown == HIDDEN:
        return f"{len(text)} characters" if text else ""
    return str(make_storable(redact(text, longest))) if text else ""


def _redact_end(traceback: str) -> str:
    """Return the end of a traceback, where the failure is."""
    if len(traceback) > MAX_TRACEBACK:
        traceback = "…" + traceback[-MAX_TRACEBACK:].partition("\n")[2]
    return _redact(traceback, MAX_TRACEBACK)


class HistoryFeed:
    """Passes the events of one app to the recorder of its tasks. The listener's thread calls it."""

    def __init__(self, recorder: TaskRecorder, shown: str = SHOWN, clock: Callable[[], float] = time.time) -> None:
        self._recorder, self._shown, self._clock = recorder, shown, clock
        self.queues: Mapping[str, Sequence[str]] = {}  # worker → the queues that it consumes

    def start(self) -> None:
        self._recorder.start()

    def connect(self) -> None:
        """Note that events are received from now on."""
        self._recorder.connect(self._clock())

    def touch(self) -> None:
        """Note that all events until now were received."""
        self._recorder.touch(self._clock())

    def receive(self, event: Mapping[str, object]) -> None:
        """Take an event as received; an invalid event is ignored."""
        at, kind = self._clock(), event.get("type")
        if kind in (BEAT, ONLINE, OFFLINE):
            self._receive_from_worker(event, at)
        elif (change := build_update(event, at, self._shown, self.queues)) is not None:
            self._recorder.hear(change)

    def close(self) -> None:
        self._recorder.close()

    def _receive_from_worker(self, event: Mapping[str, object], at: float) -> None:
        worker, time_sent = make_storable(parse_name(event.get("hostname"))), parse_seconds(event.get("timestamp"))
        if not worker or time_sent is None:
            return
        if event.get("type") == OFFLINE:
            self._recorder.forget_worker(worker)
            return
        interval = parse_seconds(event.get("freq")) or 0.0
        is_new = event.get("type") == ONLINE
        self._recorder.hear_worker(worker, at, time_sent, BEATS_MISSED * interval, is_new)
