"""The finished batches of replicas that have processes of their own.

The process of a replica reports each batch in the stream `weir:pipeline:batches:{app}`. The main process reads the
stream every second and adds the batches to the status. The time of a batch is the time of its entry, so the clocks of
the two processes don't matter.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

import msgspec
import redis

from common.stored_document import get_decoder
from queues import keys
from queues.control.replies import expect_bytes
from workers.pipeline.status.status import StatusBoard
from workers.pipeline.tiers.finished_batch import ReplicaBatch

MAX_REPORTS = 2_000
logger = logging.getLogger(__name__)


class ReplicaReports:
    """Reads and writes the stream. A reader returns only batches that are reported after its creation."""

    def __init__(self, control: redis.Redis, application: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._control, self._monotonic = control, monotonic
        self._key = keys.PIPELINE_BATCHES.build(application)
        newest = expect_bytes(control).xrevrange(self._key, count=1)
        self._after = newest[0][0].decode() if newest else "0-0"

    def add(self, replica: str, batch: ReplicaBatch) -> None:
        fields = {"replica": replica, "d": msgspec.json.encode(batch)}
        self._control.xadd(self._key, fields, maxlen=MAX_REPORTS)  # type: ignore[arg-type]

    def read_new(self) -> list[tuple[str, ReplicaBatch]]:
        """Return the replica and the batch of every report since the last call, with times of this process's clock.

        Reports of a process with another version can be unreadable. They are left out.
        """
        entries = expect_bytes(self._control).xrange(self._key, f"({self._after}")
        if not entries:
            return []
        behind = self._read_clock() - self._monotonic()
        reports = []
        for entry_id, fields in entries:
            self._after = entry_id.decode()
            try:
                batch: ReplicaBatch = get_decoder(ReplicaBatch).decode(fields[b"d"])
            except msgspec.MsgspecError as error:
                logger.warning("Report %s of a replica is unreadable, and left out: %s", self._after, error)
                continue
            at = int(self._after.partition("-")[0]) / 1_000 - behind
            reports.append((fields[b"replica"].decode(), replace(batch, at=at)))
        return reports

    def _read_clock(self) -> float:
        seconds, microseconds = self._control.time()
        return float(seconds + microseconds / 1e6)


class ReportingBoard:
    """The board of a replica with a process of its own: it records each batch for this process, and reports it."""

    def __init__(self, own: StatusBoard, reports: ReplicaReports) -> None:
        self._own, self._reports = own, reports

    def record_replica_batch(self, name: str, batch: ReplicaBatch) -> None:
        self._own.record_replica_batch(name, batch)
        self._reports.add(name, batch)
