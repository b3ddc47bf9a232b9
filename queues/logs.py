"""What a process logs: lines for people, or a JSON object a line for programs (WEIR_LOG_FORMAT), each with
the ids of what the process was at.

    2026-11-22 20:15:01,250 WARNING weir.placement [plan 17]: n3 does not answer
    {"at": "2026-11-22T20:15:01.250Z", "level": "WARNING", "logger": "weir.placement", "process": "celery",
     "pid": 4711, "message": "n3 does not answer", "plan": "17"}

| id | of |
|---|---|
| `request` | a request to the console: `X-Request-ID`, also in the answer and in the audit |
| `task` | a task of Celery |
| `loop`, `decision` | a loop's tick, and its entry in the ledger |
| `plan` | a plan that is being executed |
| `application`, `replica`, `batch` | a batch of the pipeline; no replica: of its second tier |
| `trace` | the trace at an OpenTelemetry collector, where one is set (`workers.observability`) |
"""

import logging
import logging.config
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from queues import environment as variables
from queues.checks import storable

_IDS: ContextVar[Mapping[str, str]] = ContextVar("ids", default=MappingProxyType({}))
# Of these nobody wants to hear what goes well.
CHATTY = ("httpx", "axes")


def ids() -> Mapping[str, str]:
    """What this thread or task is at."""
    return _IDS.get()


@contextmanager
def add_context(**ids: object) -> Iterator[None]:
    """Every line that is logged within has these ids, too, in this thread or task and those it starts."""
    token = _IDS.set({**_IDS.get(), **{name: str(value) for name, value in ids.items()}})
    try:
        yield
    finally:
        _IDS.reset(token)


def begin(**ids: object) -> None:
    """Like `about`, where nobody can say when it ends: until the next one, or the end of the thread."""
    _IDS.set({name: str(value) for name, value in ids.items()})


class Ids(logging.Filter):
    """Gives every line `ids`, and `about` for people: " [loop flow/a, decision 12]"."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.ids = ids = dict(_IDS.get())
        if request := getattr(getattr(record, "request", None), "request_id", ""):
            ids["request"] = request
        words = ", ".join(f"{name} {value}" for name, value in ids.items())
        record.about = f" [{words}]" if words else ""
        return True


class LinesForPeople(logging.Formatter):
    """Lines of text. What comes from outside can't begin a line of its own, nor steer a terminal."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}{about}: {message}", style="{")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's own name)
        return escape_controls(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 (logging's own name)
        """Return the traceback, each line indented: the text of an error may hold line breaks."""
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"  {escape_controls(line)}" for line in lines)


def escape_controls(text: str) -> str:
    """Return the text with each control character written as in Python: a line break as \\n."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


class LinesForPrograms(logging.Formatter):
    """A JSON object a line; `error` holds the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "process": Path(sys.argv[0]).stem or "python",
            "pid": record.process,
            "message": record.getMessage(),
            **getattr(record, "ids", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # A file's name may be no text, and orjson takes none: the line would be lost.
        return orjson.dumps(storable(line)).decode()


def configuration(level: str | int | None = None) -> dict[str, Any]:
    """For `logging.config.dictConfig`. Raises BadInput naming WEIR_LOG_FORMAT or WEIR_LOG_LEVEL."""
    chosen = variables.LOG_FORMAT.choice()
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "text": {"()": "queues.logs.LinesForPeople"},
            "json": {"()": "queues.logs.LinesForPrograms"},
        },
        "filters": {"ids": {"()": "queues.logs.Ids"}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": chosen, "filters": ["ids"]},
        },
        "root": {"handlers": ["stderr"], "level": level or variables.LOG_LEVEL.choice()},
        "loggers": {
            **{name: {"level": "WARNING"} for name in CHATTY},
            # The web server's own: its handlers would write lines of another form.
            "uvicorn": {"handlers": [], "propagate": True, "level": "WARNING"},
        },
    }


def configure(level: str | int | None = None) -> None:
    """For a process that is not Django's. Raises as `configuration`."""
    logging.config.dictConfig(configuration(level))
