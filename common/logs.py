"""The log of a process: lines for people, or one JSON object per line for programs (WEIR_LOG_FORMAT).

Each line has the ids of the current work.

    2026-11-22 20:15:01,250 WARNING weir.placement [plan 17]: n3 does not answer
    {"at": "2026-11-22T20:15:01.250Z", "level": "WARNING", "logger": "weir.placement", "process": "celery",
     "pid": 4711, "message": "n3 does not answer", "plan": "17"}

| id | of |
|---|---|
| `request` | a request to the console: `X-Request-ID`, also in the answer and in the audit log |
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
from types import MappingProxyType, TracebackType
from typing import Any, TypeAlias

import orjson

from common import environment as variables
from common.checks import make_storable

_IDS: ContextVar[Mapping[str, str]] = ContextVar("ids", default=MappingProxyType({}))
# Loggers that report success too verbosely.
CHATTY = ("httpx", "axes")


def get_context_ids() -> Mapping[str, str]:
    """Return the ids of the current work of this thread or task."""
    return _IDS.get()


@contextmanager
def add_context(**ids: object) -> Iterator[None]:
    """Add these ids to every line logged within the context, in this thread or task and those it starts."""
    token = _IDS.set({**_IDS.get(), **{name: str(value) for name, value in ids.items()}})
    try:
        yield
    finally:
        _IDS.reset(token)


def begin(**ids: object) -> None:
    """Set ids without a known end: they apply until the next call, or the end of the thread."""
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


ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LinesForPeople(logging.Formatter):
    """Lines of text. Text from outside can't start a line of its own, nor control a terminal."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}{about}: {message}", style="{")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's own name)
        return escape_controls(super().formatMessage(record))

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 (logging's own name)
        """Return the traceback, each line indented: the text of an error may contain line breaks."""
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"  {escape_controls(line)}" for line in lines)


def escape_controls(text: str) -> str:
    r"""Return the text with each control character written as in Python: a line break as \n."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


class LinesForPrograms(logging.Formatter):
    """One JSON object per line; `error` has the traceback."""

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
        # The name of a file may not be text, which orjson rejects: the line would be lost.
        return orjson.dumps(make_storable(line)).decode()


def build_log_configuration(level: str | int | None = None) -> dict[str, Any]:
    """Return the configuration for `logging.config.dictConfig`. Raises `BadInput` that names the variable."""
    chosen = variables.LOG_FORMAT.get_choice()
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"text": {"()": "common.logs.LinesForPeople"}, "json": {"()": "common.logs.LinesForPrograms"}},
        "filters": {"ids": {"()": "common.logs.Ids"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": chosen, "filters": ["ids"]}},
        "root": {"handlers": ["stderr"], "level": level or variables.LOG_LEVEL.get_choice()},
        "loggers": {
            **{name: {"level": "WARNING"} for name in CHATTY},
            # The web server's own: its handlers would write lines of another form.
            "uvicorn": {"handlers": [], "propagate": True, "level": "WARNING"},
        },
    }


def configure_logging(level: str | int | None = None) -> None:
    """Configure the log of a process without Django. Raises the same errors as `configuration`."""
    logging.config.dictConfig(build_log_configuration(level))
