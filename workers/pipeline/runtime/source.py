"""The two streaming sources: they start a batch when a replica, or the combiner, has something to do.

The offset of a batch is only its number. What a batch processes is on the control server: the assignments after the
replica's last published result (`dispatch.assignment`), and the plan of the combiner's batch (`tiers.planned_batches`).
Spark's checkpoint can therefore be deleted at any time. If there is nothing to do, a source delays its reply to Spark,
so that a batch starts as soon as work arrives.
"""

import functools
import json
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import redis
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.assignment import Dispatches
from workers.pipeline.dispatch.result_queue import ResultQueue
from workers.pipeline.events.containers import control_of
from workers.pipeline.tiers.planned_batches import PlannedBatches

NO_ROWS = "nothing int"


class WorkReader(DataSourceStreamReader):
    """Responds to Spark in the driver's process. Offsets: {"batch": number}. It yields no rows."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._application = options["application"]
        self._wait_seconds = float(options.get("wait_seconds", 0.0))

    @property
    def _control(self) -> redis.Redis:
        return control_of(self._options["control"])

    @abstractmethod
    def _has_work(self) -> bool:
        """Return whether there is work for a batch. Can wait for work."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        # Spark compares the texts: an unchanged offset must be the very same document.
        return {"batch": start["batch"] + 1} if self._has_work() else start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark calls this when it plans the next batch."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())

    def stop(self) -> None:
        """Do nothing: Spark calls this when the process ends."""


class AssignmentSource(DataSource):
    """The data source of a replica's assignments.

    Options: control (URL of the control server), application, replica; wait_seconds (default 0): maximum wait for work.
    """

    @classmethod
    def name(cls) -> str:
        return "weir_assignments"

    def schema(self) -> str:
        return NO_ROWS

    def streamReader(self, schema: StructType) -> "AssignmentReader":  # noqa: N802
        return AssignmentReader(dict(self.options))


class AssignmentReader(WorkReader):
    """Starts a batch when the replica has an assignment without a published result."""

    def _has_work(self) -> bool:
        replica = self._options["replica"]
        dispatches = Dispatches(self._control, self._application)
        published = ResultQueue(self._control, self._application).measure_room().published.get(replica, 0)
        if dispatches.list_after(replica, published, 1):
            return True
        if self._wait_seconds:
            dispatches.await_after(replica, published, self._wait_seconds)
        return bool(dispatches.list_after(replica, published, 1))


class ResultSource(DataSource):
    """The data source of the replicas' results.

    Options: control, application, replicas (comma-separated), controls (JSON, the defaults) and wait_seconds.
    """

    @classmethod
    def name(cls) -> str:
        return "weir_results"

    def schema(self) -> str:
        return NO_ROWS

    def streamReader(self, schema: StructType) -> "ResultReader":  # noqa: N802
        return ResultReader(dict(self.options))


class ResultReader(WorkReader):
    """Plans and starts the combiner's next batch. Restarts a planned batch that is not finished."""

    def _has_work(self) -> bool:
        options = self._options
        batches = _open_batches(options["control"], self._application, options["replicas"], options["controls"])
        planned = batches.load()
        if planned is not None and not planned.is_done:
            return True
        return batches.plan_after(planned, self._wait_seconds) is not None


@functools.cache
def _open_batches(control_url: str, application: str, replicas: str, controls: str) -> PlannedBatches:
    """Return the combiner's batches. A reader can't keep them: Spark serializes it with each batch."""
    defaults = Controls().apply_changes(json.loads(controls))
    return PlannedBatches(control_of(control_url), application, tuple(replicas.split(",")), defaults)
