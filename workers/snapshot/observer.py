"""The observer, which makes and publishes one snapshot per second.

It publishes the snapshot as stored data, as a row of history, and to the web processes. It also records it if it has a
recorder, counts objectives, passes it to `sent`, which must not block, and removes producers that have left.

It observes 0.2 s after the full second, when the agents' heartbeats (on the full second) have arrived. Two observers
may run; the one with the lease publishes, and the other takes over within LEASE_SECONDS when it dies.
"""

import http.client
import logging
import math
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping

import msgspec
import redis
from django.db import DatabaseError, close_old_connections

from common import own_process
from common.stored_document import BadDocument, decode_readable_document, encode_document, replace_fields
from queues import keys
from queues.control.replies import Fields, expect_bytes
from queues.lua.script import load_script
from queues.publishing.producers import KNOWN_SECONDS, LEFT_SECONDS
from workers.coordination.leases import Lease
from workers.coordination.merge_patch import JsonObject, document_difference
from workers.coordination.plant_clock import Freshness
from workers.documents.queues import ReportedProducer
from workers.documents.snapshot import Snapshot
from workers.history.metrics import MetricWriter
from workers.history.snapshot_archive import Recorder
from workers.objectives.book import ObjectiveBook
from workers.plants.plant import Plant

PROBE_SECONDS, TIMEOUT_SECONDS = 5.0, 2.0
# An older answer says nothing about now.
ANSWER_SECONDS = 3 * PROBE_SECONDS
SERVER_ERROR = 500
# A proxy of the environment is for remote addresses; it would be used for the local console, too.
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
REMOVAL_SECONDS = 60.0
MAX_AT_ONCE = 500  # for a script of some milliseconds, for which no process waits
KIND = "producer"
TOPIC = "plant"
OBSERVE_AT_SECONDS = 0.2
LEASE_SECONDS = 3.0
logger = logging.getLogger(__name__)


def is_answering(address: str) -> bool:
    """Return whether a console at this address (http://host:port) answers in time and without a failure."""
    try:
        with _DIRECTLY.open(f"{address}/healthz", timeout=TIMEOUT_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        return error.code < SERVER_ERROR  # it does not know the name in the request, but it runs
    except (OSError, ValueError, http.client.HTTPException):  # the latter: the answer is not HTTP
        return False


class ConsoleProbe:
    """A periodic probe; `available` is its last result."""

    def __init__(self, ask: Callable[[], bool], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._monotonic = ask, monotonic
        self._found: tuple[float, bool] | None = None

    @classmethod
    def start(cls, address: str) -> "ConsoleProbe | None":
        """Start a probe that runs until the process ends; None without an address."""
        if not address:
            return None
        probe = cls(lambda: is_answering(address.rstrip("/")))
        threading.Thread(target=probe.run, args=(threading.Event(),), name="console-probe", daemon=True).start()
        return probe

    def ask(self) -> None:
        answered = self._ask()
        self._found = self._monotonic(), answered

    def run(self, stop: threading.Event) -> None:
        """Probe until `stop`."""
        while True:
            self.ask()
            if stop.wait(PROBE_SECONDS):
                return

    def compute_availability(self) -> float | None:
        """Return 1 where it answered last, 0 where it did not, None while unknown."""
        if self._found is None or self._monotonic() - self._found[0] > ANSWER_SECONDS:
            return None
        return float(self._found[1])


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
        self._due_seconds = monotonic_seconds + REMOVAL_SECONDS
        try:
            rows = expect_bytes(self._control).hgetall(keys.PRODUCERS)
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
            self._is_failing = False
        except redis.RedisError as error:
            if not self._is_failing:
                logger.warning("Failed to remove the rows of producers that no longer report: %s", error)
            self._is_failing = True
            return 0
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


def compute_wait_seconds(now: float) -> float:
    """Return the time from wall time `now` to the next 0.2 of a second: in (0, 1], whatever the clock did.

    Only the fraction of the second is taken from the wall clock, so a clock that jumps causes neither a stall nor a
    burst.
    """
    return (OBSERVE_AT_SECONDS - now) % 1.0 or 1.0


def encode_message(snapshot: Snapshot, stored: bytes, patch: JsonObject | None) -> bytes:
    """Return the message to the web processes.

    It has the stored snapshot and (unless it is the first) the merge patch from the previous one.
    """
    document = {"seq": snapshot.seq, "at": snapshot.at, "topic": TOPIC, "snapshot": msgspec.Raw(stored)}
    return encode_document(document if patch is None else {**document, "delta": patch})


class Observer:
    """A publisher of a plant's snapshots. `step` is one check; `run` checks once a second until stopped."""

    def __init__(
        self,
        control: redis.Redis,
        plant: Plant,
        clock: Callable[[], float] = time.time,
        recorder: Recorder | None = None,
        sent: Callable[[Snapshot], None] | None = None,
        objectives: ObjectiveBook | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic, self._left_producers = monotonic, LeftProducers(control)
        self._control, self._plant, self._clock, self._recorder = control, plant, clock, recorder
        self._sent, self._objectives = sent, objectives
        self._lease = Lease(control, "observer", LEASE_SECONDS)
        self._before: Snapshot | None = None
        self._metrics = MetricWriter(control)
        self._is_failing, self._unrecorded = False, False

    def step(self) -> Snapshot | None:
        """Observe, and publish when the lease is held. Return what was published.

        It also observes without the lease: a successor must have watched to know ages and rates.
        """
        snapshot = self._plant.observe()
        if not self._check_ownership():
            if self._objectives is not None:
                self._objectives.reset_state()
            return None
        snapshot = replace_fields(snapshot, seq=self._before.seq + 1 if self._before else 1)
        if self._objectives is not None:
            snapshot = replace_fields(snapshot, objectives=self._objectives.step(snapshot, self._before))
        stored = snapshot.to_json()
        patch = None if self._before is None else document_difference(self._before, snapshot)
        with self._control.pipeline(transaction=True) as pipe:
            pipe.set(keys.SNAPSHOT, stored)
            self._metrics.append(pipe, snapshot)
            pipe.publish(keys.LIVE, encode_message(snapshot, stored, patch))
            pipe.execute()
        self._before = snapshot
        # This is last: live data must not wait for a disk that is full or slow.
        self._record(snapshot, stored)
        if self._objectives is not None:
            self._objectives.keep()
        if self._sent is not None:
            self._sent(snapshot)
        self._left_producers.step(self._clock(), self._monotonic())
        return snapshot

    def run(self, stop: threading.Event) -> None:
        """Run until `stop`.

        A failure (the control server or the database is away) is logged once, and retried each second.
        """
        while not stop.wait(compute_wait_seconds(self._clock())):
            try:
                self.step()
                self._is_failing = False
            except Exception as error:
                # Any failure may be over at the next check; an observer that exits helps no one.
                self._complain(error)
            own_process.touch()
        self.close()

    def close(self) -> None:
        """Release the lease, so that another observer takes over at once."""
        if self._objectives is not None:
            self._objectives.close()
        try:
            self._lease.release()
        except redis.RedisError:
            logger.info("The observer's lease could not be released; it expires on its own.")

    def _record(self, snapshot: Snapshot, stored: bytes) -> None:
        """Record the snapshot.

        A full disk is logged once, retried each second, and does not stop the following steps: minutes of the
        objectives, metrics for a collector.
        """
        if self._recorder is None:
            return
        try:
            self._recorder.add(snapshot.at or self._clock(), stored)
            self._unrecorded = False
        except OSError as error:
            if not self._unrecorded:
                logger.warning("Failed to record snapshots for the history: %s", error)
            self._unrecorded = True

    def _check_ownership(self) -> bool:
        if self._lease.renew():
            return True
        # Lost or never held. The next holder continues from the last published snapshot, whoever published it.
        if self._lease.acquire() is None:
            return False
        stored = self._control.get(keys.SNAPSHOT)
        self._before = _read_stored_snapshot(stored) if stored else None
        return True

    def _complain(self, error: Exception) -> None:
        if not self._is_failing:
            logger.warning("Failed to observe the plant: %r", error)
        self._is_failing = True
        if isinstance(error, DatabaseError):
            close_old_connections()


def _read_stored_snapshot(stored: bytes | str) -> Snapshot | None:
    """Return the stored snapshot; None where it is another version's and unreadable."""
    try:
        return Snapshot.from_json(stored)
    except BadDocument as error:
        logger.warning("The stored snapshot cannot be read: %s", error)
        return None
