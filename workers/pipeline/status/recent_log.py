"""The newest lines of the process's log, where the console can read them (`weir:pipeline:log`).

The lines of the previous process stay until there are newer ones: they say why it ended.
"""

import logging
from collections import deque
from typing import cast

import redis

from common.stored_document import BadDocument, decode_document, encode_document
from queues import keys
from workers.documents.pipeline import LogLine, PipelineLog

MAX_LINES = 60
MAX_TEXT = 400


class RecentLog(logging.Handler):
    """A handler of the root logger. `write` is called every second, and writes what is new."""

    def __init__(self, control: redis.Redis) -> None:
        super().__init__(logging.INFO)
        self._control = control
        self._lines = deque(_load_previous(control), MAX_LINES)
        self._is_new = False

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())[:MAX_TEXT]
        self._lines.append(LogLine(at=round(record.created, 3), level=record.levelname, text=text))
        self._is_new = True

    def write(self) -> None:
        """Write new lines.

        If the control server is unavailable or full, they are written with the next line.
        """
        if not self._is_new:
            return
        self._is_new = False
        try:
            self._control.set(keys.PIPELINE_LOG, encode_document(PipelineLog(lines=list(self._lines))))
        except redis.RedisError:
            self._is_new = True


def list_newest_lines(control: redis.Redis) -> list[LogLine]:
    """Return the lines, newest first."""
    return list(reversed(_load_previous(control)))


def _load_previous(control: redis.Redis) -> list[LogLine]:
    try:
        text = cast(bytes | None, control.get(keys.PIPELINE_LOG))
        return decode_document(PipelineLog, text, "log").lines if text else []
    except (BadDocument, redis.ConnectionError, redis.TimeoutError):
        return []
