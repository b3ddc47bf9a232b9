"""The reports of producers in `weir:producers`: cumulative counts, one report per second."""

import os
import secrets
import threading
from collections.abc import Callable

import orjson
import pyarrow as pa
import redis

from queues import keys
from queues.events.block import Composition, compute_composition
from queues.lua.script import load_script

EVERY_SECONDS = 1.0
# A report that is repeated after this long, or after reports of this many others of its name, may count twice.
KNOWN_SECONDS, KNOWN_PROCESSES = 600, 50
# A producer that has been silent for a day is considered gone, and its row is removed (`workers.snapshot.observer`).
LEFT_SECONDS = 86_400.0


class ProducerReport:
    """Counts of one producer, sent by a thread of its own once a second while they change, and at the end.

    A report without an acknowledgment may have been stored. It is repeated under its number, which counts once, and
    newer counts wait for it.
    """

    def __init__(self, control: redis.Redis, producer: str, clock: Callable[[], float]) -> None:
        self._producer, self._clock = producer, clock
        self._add = control.register_script(load_script("control/count_published"))
        self._process, self._number = secrets.token_hex(4), 0
        self._pending: dict[str, list[int]] = {}
        self._unsure: dict[str, tuple[int, list[int]]] = {}  # queue → the report without an acknowledgment
        self._samples: dict[str, Composition] = {}  # queue → what was published first since its last report
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, queue: str, events: int = 0, blocks: int = 0, *, rejected: int = 0, rerouted: int = 0) -> None:
        """Count events; they are reported within about a second."""
        with self._lock:
            row = self._pending.setdefault(queue, [0, 0, 0, 0])
            for place, count in enumerate((events, blocks, rejected, rerouted)):
                row[place] += count
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="weir-producer", daemon=True)
                self._thread.start()

    def sample(self, queue: str, batch: pa.RecordBatch) -> None:
        """Sample what is published, once for each report."""
        with self._lock:
            if queue in self._samples:
                return
            self._samples[queue] = {}
        sample_row = compute_composition(batch)
        with self._lock:
            self._samples[queue] = sample_row

    def flush(self) -> None:
        """Report now. Unreported counts are kept for the next time: figures never stop publishing."""
        for queue, (number, row) in self._collect_reports().items():
            if self._send_row(queue, number, row):
                with self._lock:
                    if self._unsure.get(queue, (0, []))[0] == number:
                        del self._unsure[queue]

    def _collect_reports(self) -> dict[str, tuple[int, list[int]]]:
        with self._lock:
            for queue in self._pending.keys() - self._unsure.keys():
                if any(row := self._pending.pop(queue)):
                    self._number += 1
                    self._unsure[queue] = (self._number, row)
            return dict(self._unsure)

    def close(self) -> None:
        """Stop the thread and report the rest."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5.0)
        self.flush()
        self.flush()  # the counts that waited for a report without an acknowledgment

    def _run(self) -> None:
        while not self._closing.wait(EVERY_SECONDS):
            self.flush()

    def _send_row(self, queue: str, number: int, row: list[int]) -> bool:
        name, at = f"{self._producer}|{queue}", f"{self._clock():.3f}"
        process = f"{self._process}-{os.getpid()}"  # a forked process counts separately
        try:
            known = (KNOWN_SECONDS, KNOWN_PROCESSES)
            with self._lock:
                sample_row = self._samples.pop(queue, None)
            sample = orjson.dumps(sample_row) if sample_row else b""
            self._add(keys=[keys.PRODUCERS], args=[name, at, *row, process, number, *known, sample])
        except (redis.RedisError, OSError):
            return False
        return True
