"""Removal of producers that have left, so that one-time names (a run, a new host) do not accumulate."""

import logging
import math
from collections.abc import Mapping
from typing import cast

import redis

from common.redis_types import Fields
from common.stored_document import decode_readable_document
from queues import keys
from queues.lua.script import load_script
from queues.publishing.producers import KNOWN_SECONDS, LEFT_SECONDS
from workers.coordination.plant_clock import Freshness
from workers.documents.queues import ReportedProducer

EVERY_SECONDS = 60.0
MAX_AT_ONCE = 500  # for a script of some milliseconds, for which no process waits
KIND = "producer"
logger = logging.getLogger(__name__)


class LeftProducers:
    """A process that removes the rows of producers that have been silent for LEFT_SECONDS, once a minute.

    The silence is judged by their own time stamps or by this watcher's clock. A time stamp alone is never enough: a row
    must be unchanged for KNOWN_SECONDS by this watcher's observation, so that a producer whose clock is days behind
    stays while it publishes.
    """

    def __init__(self, control: redis.Redis) -> None:
        self._control = control
        self._forget = control.register_script(load_script("control/forget_producers"))
        self._silent, self._unchanged = Freshness(), Freshness()
        self._due_seconds = -math.inf
        self._is_failing = False

    def step(self, now: float, monotonic_seconds: float) -> int:
        """Remove producers that have left, once a minute; return how many rows. A failure is logged once."""
        if monotonic_seconds < self._due_seconds:
            return 0
        self._due_seconds = monotonic_seconds + EVERY_SECONDS
        try:
            rows = cast(Fields, self._control.hgetall(keys.PRODUCERS))
            gone = self._list_gone(rows, now, monotonic_seconds)
            self._is_failing = False
        except redis.RedisError as error:
            if not self._is_failing:
                logger.warning("Failed to remove the rows of producers that no longer report: %s", error)
            self._is_failing = True
            return 0
        return gone

    def _list_gone(self, rows: Fields, now: float, monotonic_seconds: float) -> int:
        left = self._list_left(rows, now, monotonic_seconds)
        names = list(left)
        gone = 0
        for first in range(0, len(names), MAX_AT_ONCE):
            pairs = [part for name in names[first : first + MAX_AT_ONCE] for part in (name, left[name])]
            gone += int(self._forget(keys=[keys.PRODUCERS], args=pairs))
        # A producer that returns is a new one here, too.
        there = [name.decode() for name in rows if name not in left]
        for watched in (self._silent, self._unchanged):
            watched.forget_others(KIND, there)
        return gone

    def _list_left(self, rows: Fields, now: float, monotonic_seconds: float) -> Mapping[bytes, bytes]:
        left = {}
        for name, stored in rows.items():
            watched, mark = f"{KIND}/{name.decode()}", hash(stored)
            report = decode_readable_document(ReportedProducer, stored)
            lag = now - report.at if report else 0.0
            silent = self._silent.compute_age_seconds(watched, mark, monotonic_seconds, lag)
            unchanged = self._unchanged.compute_age_seconds(watched, mark, monotonic_seconds)
            if silent >= LEFT_SECONDS and unchanged >= KNOWN_SECONDS:
                left[name] = stored
        return left
