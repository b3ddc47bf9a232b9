"""Long-running tasks, which execute the batches of a replica, or of the combiner, when they are due.

A separate micro-batch for each batch takes Spark tens of milliseconds. A long-running task instead waits for entries on
the control server, and starts a batch within a millisecond. A Structured Streaming query starts the task. A micro-batch
of the query is an *epoch*: a Spark job of one task that executes batches for EPOCH_SECONDS. Spark places and supervises
the task like any other task. Without Spark, a thread of the pipeline process runs the epochs (`task_thread`).

Results are as exact as with a separate micro-batch for each batch, because a batch continues only from state on the
control server (`dispatch.result_queue`, `tiers.planned_batches`). A task can therefore end at any time. Two tasks of
one role can run at the same time; one of them then detects that it was overtaken. Tasks end early when the start or the
content that they belong to (`weir:pipeline:tasks:{app}`) changes.
"""

import logging
import math
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
import redis
from pyspark import SparkContext
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from queues import keys
from queues.control.replies import expect_bytes
from queues.publishing.client import Client
from workers.documents.queues import PIPELINE_PRODUCER
from workers.pipeline.declaration.declaration import Application
from workers.pipeline.dispatch.assignment import Dispatches
from workers.pipeline.dispatch.result_queue import AttemptOvertaken, ResultQueue
from workers.pipeline.events.containers import control_of
from workers.pipeline.runtime.source import NO_ROWS, WorkReader
from workers.pipeline.status.batch_reports import BatchReports
from workers.pipeline.tiers.batch_work import COMBINER, BatchWork, describe_error
from workers.pipeline.tiers.helped_tasks import HelpedTasks, HelperAnswer, TaskLists
from workers.pipeline.tiers.inter_event import InterEventWork
from workers.pipeline.tiers.intra_event import ReplicaRules, ReplicaWork, RuleRunner
from workers.pipeline.tiers.operators import Work
from workers.pipeline.tiers.outbox import Outbox
from workers.pipeline.tiers.planned_batches import PlannedBatch, PlannedBatches
from workers.pipeline.tiers.state import NewerState, StateStore

EPOCH_SECONDS = 20.0  # between two epochs, no batch is executed for about 50 ms
WAIT_SECONDS = 0.5  # how often a task without work checks whether it has to end
SHARED_WAIT_SECONDS = 0.02  # the same, for roles that share a task
BUSY_WAIT_SECONDS = 0.001  # the same, if another role of the task has just executed a batch
# The duration of an epoch if an application has no slot of its own, so that tasks share a slot one after the other.
ALTERNATING_SECONDS = 2.0
OUTBOX_RETRY_SECONDS = 1.0  # how often an idle combiner publishes again what a queue did not accept
RETRY_SECONDS = 10.0  # a second failure of an epoch within this time ends the query

log = logging.getLogger("weir.pipeline")
_has_run = threading.Event()  # set if this process, a Python worker, has had a task


class TaskStart:
    """The start of an application in a process. The long-running tasks of the process belong to this start.

    Safe in threads.
    """

    def __init__(self, control: redis.Redis, application: str, process: str) -> None:
        self._control, self._key = control, keys.PIPELINE_TASKS.build(application)
        self._version, self._lock = 0, threading.Lock()
        self.process, self.name = process, secrets.token_hex(8)

    @property
    def mark(self) -> bytes:
        """Return the value of the key while tasks that start now belong to this start."""
        return f"{self.name}/{self._version}".encode()

    def renew(self) -> None:
        """End the running tasks, so that the next tasks start with the current content."""
        with self._lock:  # the key and the mark must not differ
            self._version += 1
            self._control.hset(self._key, self.process, self.mark)

    def end(self) -> None:
        """End the running tasks and start no more tasks, unless the application has started again."""
        if expect_bytes(self._control).hget(self._key, self.process) == self.mark:
            self._control.hdel(self._key, self.process)


class Executor(ABC):
    """Executes the batches of one role in the process of a task."""

    @abstractmethod
    def execute(self, wait_seconds: float) -> bool:
        """Execute the next batch, or wait for one. Returns whether a batch was executed."""

    def end(self) -> None:  # noqa: B027
        """Wait for what runs in the background, so that the next executor of the role does not repeat it."""


@dataclass(frozen=True)
class TaskRole(ABC):
    """A role of an application: a replica, the combiner, or a helper. Spark serializes it for the task."""

    control_url: str
    application: Application

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the name of the replica, COMBINER, or the name of the helper."""

    @abstractmethod
    def build(self, control: redis.Redis) -> Executor:
        """Return the executor of the batches of this role."""


@dataclass(frozen=True)
class ReplicaRole(TaskRole):
    """A replica. runner: applies the rules in the process of the task."""

    replica: str
    runner: RuleRunner

    @property
    def name(self) -> str:
        return self.replica

    def build(self, control: redis.Redis) -> Executor:
        return _ReplicaExecutor(self, control)


class _ReplicaExecutor(Executor):
    def __init__(self, role: ReplicaRole, control: redis.Redis) -> None:
        name = role.application.name
        self._replica, self._dispatches = role.replica, Dispatches(control, name)
        self._results = ResultQueue(control, name)
        board = BatchReports(control, name)
        self._work = ReplicaWork(role.runner, role.application, role.replica, control, board)

    def execute(self, wait_seconds: float) -> bool:
        if self._work.process_next():
            return True
        published = self._results.measure_room().published.get(self._replica, 0)
        self._dispatches.await_after(self._replica, published, wait_seconds)
        return False


@dataclass(frozen=True)
class CombinerRole(TaskRole):
    """The combiner. run: run of the checkpoint. replicas: replicas whose results it combines. helpers: their number."""

    run: str
    replicas: tuple[str, ...]
    helpers: int = 0

    @property
    def name(self) -> str:
        return COMBINER

    def build(self, control: redis.Redis) -> Executor:
        return _CombinerExecutor(self, control)


class _CombinerExecutor(Executor):
    def __init__(
        self, role: CombinerRole, control: redis.Redis, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        application = role.application
        self._monotonic, self._retried_at = monotonic, -math.inf
        self._batches = PlannedBatches(control, application.name, role.replicas, application.controls)
        client = _open_client(role.control_url, application.name)
        self._outbox = Outbox(StateStore(control, application.name), client)
        board = BatchReports(control, application.name)
        runner = HelpedTasks(TaskLists(control, application.name), role.helpers)
        self._work = InterEventWork(runner, role.control_url, application, role.run, control, self._outbox, board)
        self._done: PlannedBatch | None = None
        if (planned := self._batches.load()) is not None:
            self._execute(planned)

    def execute(self, wait_seconds: float) -> bool:
        planned = self._batches.plan_after(self._done, wait_seconds)
        if planned is not None:
            self._execute(planned)
        elif self._monotonic() - self._retried_at >= OUTBOX_RETRY_SECONDS:
            self._outbox.retry()
            self._retried_at = self._monotonic()
        return planned is not None

    def end(self) -> None:
        self._outbox.await_published()

    def _execute(self, planned: PlannedBatch) -> None:
        if not planned.is_done:
            self._work.process(planned)
        self._done = planned._replace(is_done=True)


@dataclass(frozen=True)
class HelperRole(TaskRole):
    """A helper of the combiner. run: run of the checkpoint. number: number of the helper, from 1."""

    run: str
    number: int

    @property
    def name(self) -> str:
        return f"helper{self.number}"

    def build(self, control: redis.Redis) -> Executor:
        return _HelperExecutor(self, control)


class _HelperExecutor(Executor):
    def __init__(self, role: HelperRole, control: redis.Redis) -> None:
        self._role = role
        self._lists = TaskLists(control, role.application.name)
        self._batches = PlannedBatches(control, role.application.name)

    def execute(self, wait_seconds: float) -> bool:
        order = self._lists.take(wait_seconds)
        if order is None:
            return False
        planned, role = self._batches.load(), self._role
        if planned is None or planned.batch != order.batch:
            return True  # the combiner has executed it without this helper
        application = role.application
        places = (role.control_url, application.name, role.run, order.batch, planned.offset)
        work = Work(*places, application.graph, application.sinks, order.level)
        try:
            counts = work(order.units)
        except (NewerState, KeyError) as error:
            log.warning("A helper took a task of batch %d too late: %s", order.batch, error)
            return True
        self._lists.answer(HelperAnswer(order.attempt, order.number, tuple(counts)))
        return True


@cache
def _open_client(control_url: str, application: str) -> Client:
    """Return the process-wide client for complex events."""
    return Client(control_url, producer=f"{PIPELINE_PRODUCER}{application}", when_throttled="ignore")


@dataclass(frozen=True)
class LongTask:
    """The task of an epoch. Spark serializes it for a worker. Roles share a task if there are fewer slots than roles.

    process, mark: process and mark of the start that the task belongs to.
    """

    roles: tuple[TaskRole, ...]
    process: str
    mark: bytes
    seconds: float = EPOCH_SECONDS

    def __call__(self, rows: Iterable[int], monotonic: Callable[[], float] = time.monotonic) -> Iterator[int]:
        """Execute batches until the epoch ends. Yields the number of batches."""
        list(rows)  # Spark starts a new worker after a task that does not read its input
        _has_run.set()
        pa.set_cpu_count(1)
        control = control_of(self.roles[0].control_url)
        key = keys.PIPELINE_TASKS.build(self.roles[0].application.name)
        ends_at, batches = monotonic() + self.seconds, 0
        executors = [role.build(control) for role in self.roles]
        idle_seconds = WAIT_SECONDS if len(executors) == 1 else SHARED_WAIT_SECONDS
        most = idle_seconds
        try:
            while (left := ends_at - monotonic()) > 0 and expect_bytes(control).hget(key, self.process) == self.mark:
                try:
                    executed = sum(executor.execute(min(left, most)) for executor in executors)
                    batches += executed
                    most = BUSY_WAIT_SECONDS if executed and len(executors) > 1 else idle_seconds
                except (AttemptOvertaken, NewerState) as error:
                    # Another task of the role is still running. The overtaken task continues after the batch of the
                    # other task.
                    log.warning("%s", error)
                    _end_all(executors)
                    executors = [role.build(control) for role in self.roles]
        finally:
            _end_all(executors)
        yield batches


def _end_all(executors: Iterable[Executor]) -> None:
    for executor in executors:
        executor.end()


class EpochSource(DataSource):
    """The data source of epochs. Options: control (URL of the control server), application, process, start (a name)."""

    @classmethod
    def name(cls) -> str:
        return "weir_epochs"

    def schema(self) -> str:
        return NO_ROWS

    def streamReader(self, schema: StructType) -> "EpochReader":  # noqa: N802
        return EpochReader(dict(self.options))


class EpochReader(WorkReader):
    """Starts an epoch as soon as the previous epoch ends, until the start of the application ends."""

    def _has_work(self) -> bool:
        key = keys.PIPELINE_TASKS.build(self._application)
        mark = expect_bytes(self._control).hget(key, self._options["process"])
        return mark is not None and mark.startswith(f"{self._options['start']}/".encode())


class EpochWork(BatchWork):
    """The epochs of a query.

    run: runs a task, and waits for its end. build: returns the task of an epoch, or None if there is nothing to do. If
    a worker is killed, the epoch ends, and the next epoch starts immediately. A second failure within RETRY_SECONDS
    ends the query.
    """

    def __init__(
        self,
        run: Callable[[LongTask], object],
        build: Callable[[], LongTask | None],
        ids: dict[str, str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._build, self.ids, self._monotonic = run, build, ids, monotonic
        self._failed_at = -math.inf

    def work(self) -> None:
        if (task := self._build()) is None:
            return
        try:
            self._run(task)
        except Exception as error:  # any error of a task: the next epoch tries again
            now = self._monotonic()
            if now - self._failed_at < RETRY_SECONDS:
                raise
            self._failed_at = now
            log.warning("A long-running task failed and is restarted: %s", describe_error(error))


def run_on_spark(spark: SparkContext, task: LongTask) -> None:
    """Run an epoch as a Spark job of one task."""
    spark.parallelize([0], 1).mapPartitions(task).collect()


def renew_runners(roles: Iterable[TaskRole], rules: Mapping[str, ReplicaRules]) -> tuple[TaskRole, ...]:
    """Return the roles with the current reference tables. rules: by replica."""
    renewed: list[TaskRole] = []
    for role in roles:
        if isinstance(role, ReplicaRole) and (runner := rules[role.replica].build_local_runner()) is not None:
            role = replace(role, runner=runner)
        renewed.append(role)
    return tuple(renewed)


def prepare_worker(rows: Iterable[int]) -> Iterator[bool]:
    """Import in a Python worker what long-running tasks need. Yields whether this is the worker's first task."""
    list(rows)
    is_first = not _has_run.is_set()
    _has_run.set()
    yield is_first
