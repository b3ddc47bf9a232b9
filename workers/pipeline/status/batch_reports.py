"""The finished batches that other processes report: long-running tasks, and replicas in separate processes.

Each batch is an entry of the stream `weir:pipeline:batches:{app}`. The process that publishes the status reads the
stream every second. The time of a batch is the time of its entry, so the clocks of the processes don't matter.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import msgspec
import redis

from common.stored_document import get_decoder, replace_fields
from queues import keys
from queues.control.replies import expect_bytes
from workers.pipeline.status.status import StatusBoard
from workers.pipeline.tiers.finished_batch import InterEventBatch, ReplicaBatch

MAX_REPORTS = 2_000
COMBINED = b""  # in place of a replica's name
Batch = TypeVar("Batch", ReplicaBatch, InterEventBatch)
logger = logging.getLogger(__name__)


class BatchReports:
    """Reads and writes the stream. A reader returns only batches that are reported after its creation."""

    def __init__(self, control: redis.Redis, application: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._control, self._monotonic = control, monotonic
        self._key = keys.PIPELINE_BATCHES.build(application)
        newest = expect_bytes(control).xrevrange(self._key, count=1)
        self._after = newest[0][0].decode() if newest else "0-0"

    def record_replica_batch(self, name: str, batch: ReplicaBatch) -> None:
        self._add(name, batch)

    def record_inter_event_batch(self, batch: InterEventBatch) -> None:
        # The results that the combiner kept are the largest part, and no reader of a report uses them.
        self._add("", replace(batch, combined=replace_fields(batch.combined, left_over=())))

    def _add(self, replica: str, batch: ReplicaBatch | InterEventBatch) -> None:
        fields = {"replica": replica, "d": msgspec.json.encode(batch)}
        self._control.xadd(self._key, fields, maxlen=MAX_REPORTS)  # type: ignore[arg-type]

    def deliver(self, board: StatusBoard, replicas: frozenset[str] | None = None) -> None:
        """Record every batch that was reported since the last call.

        replicas: replicas whose batches are recorded; None: all replicas and the combiner. Reports of a process with
        another version can be unreadable, and are skipped.
        """
        for replica, entry_id, data, behind in self._read_new():
            at = int(entry_id.partition("-")[0]) / 1_000 - behind
            if replicas is not None and replica.decode() not in replicas:
                continue
            if replica != COMBINED:
                if (batch := self._decode(ReplicaBatch, entry_id, data)) is not None:
                    board.record_replica_batch(replica.decode(), replace(batch, at=at))
            elif (combined := self._decode(InterEventBatch, entry_id, data)) is not None:
                board.record_inter_event_batch(replace(combined, at=at))

    def _read_new(self) -> Iterator[tuple[bytes, str, bytes, float]]:
        """Yield replica, entry, and batch of each report, and the seconds from this process's clock to the server's."""
        entries = expect_bytes(self._control).xrange(self._key, f"({self._after}")
        behind = self._read_clock() - self._monotonic() if entries else 0.0
        for name, fields in entries:
            self._after = name.decode()
            yield fields[b"replica"], self._after, fields[b"d"], behind

    def _decode(self, kind: type[Batch], entry_id: str, data: bytes) -> Batch | None:
        try:
            batch: Batch = get_decoder(kind).decode(data)
            return batch
        except msgspec.MsgspecError as error:
            logger.warning("Skipped the unreadable batch report %s: %s", entry_id, error)
            return None

    def _read_clock(self) -> float:
        seconds, microseconds = self._control.time()
        return float(seconds + microseconds / 1e6)


class ReportingBoard:
    """The board of a replica in a separate process. It records each batch for this process, and reports the batch."""

    def __init__(self, own: StatusBoard, reports: BatchReports) -> None:
        self._own, self._reports = own, reports

    def record_replica_batch(self, name: str, batch: ReplicaBatch) -> None:
        self._own.record_replica_batch(name, batch)
        self._reports.record_replica_batch(name, batch)
