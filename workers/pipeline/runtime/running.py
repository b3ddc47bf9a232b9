"""One running application: the dispatcher, a query for each replica, and the query of the combiner.

In the process of a replica, only the query of this replica runs. Without Spark, threads run the long-running tasks.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import redis
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from common.errors import BadInput, WeirError
from queues.publishing.client import Client
from workers.documents.queues import PIPELINE_PRODUCER
from workers.pipeline.declaration.declaration import Application
from workers.pipeline.declaration.replicas import MAIN, ProcessRole
from workers.pipeline.dispatch.assignment import Dispatches
from workers.pipeline.dispatch.dispatcher import Dispatcher
from workers.pipeline.dispatch.result_queue import ResultQueue
from workers.pipeline.events.containers import Nodes, connect_to_control
from workers.pipeline.events.faults import FaultStore
from workers.pipeline.runtime.long_tasks import (
    CombinerRole,
    EpochSource,
    EpochWork,
    LongTask,
    ReplicaRole,
    TaskRole,
    TaskStart,
    renew_runners,
    run_on_spark,
)
from workers.pipeline.runtime.source import AssignmentSource, ResultSource
from workers.pipeline.runtime.task_plan import TaskArranger, TaskPlan, TaskSlots
from workers.pipeline.runtime.task_thread import TaskThread, run_in_thread
from workers.pipeline.status.batch_reports import BatchReports, ReportingBoard
from workers.pipeline.status.status import StatusBoard
from workers.pipeline.tiers.batch_work import COMBINER, BatchWork, Checkpoint, describe_error
from workers.pipeline.tiers.inter_event import InterEventWork, SparkTasks
from workers.pipeline.tiers.intra_event import ReplicaBoard, ReplicaRules, ReplicaWork, RulePlans
from workers.pipeline.tiers.monitor import Monitor
from workers.pipeline.tiers.outbox import Outbox
from workers.pipeline.tiers.state import StateStore

INTRA, INTER = TIERS = ("intra-event", "inter-event")
# How long the source of a query waits for something to do. Stopping a query waits for it.
SOURCE_WAIT_SECONDS = 0.5
STOPPING_SECONDS = 10.0
PATIENCE_SECONDS = 30.0
SOURCES_SECONDS = 60.0  # for all queries together; less than the watchdog allows a start

log = logging.getLogger("weir.pipeline")


class Running:
    """The constructor starts it, `check` raises what went wrong, and `end` stops it between two batches."""

    def __init__(
        self,
        spark: SparkSession | None,
        control_url: str,
        application: Application,
        checkpoint: Checkpoint,
        status: StatusBoard,
        trigger_seconds: float,
        patience_seconds: float = PATIENCE_SECONDS,
        tiers: tuple[str, ...] = TIERS,
        one_at_a_time: bool = False,
        role: ProcessRole = MAIN,
        slots: TaskSlots | None = None,
    ) -> None:
        """Start it. spark: None: run the long-running tasks in threads of this process, which needs roles for all work.

        tiers: which of the two tiers it runs; they meet in the result queue. role: which replicas this process runs;
        the main process also dispatches and combines.
        one_at_a_time: whether a query waits for the sources of the previous one. Spark gives the Python worker behind a
        source 10 seconds to start; on a loaded host, several at once all exceed that.
        """
        self._spark, self._application, self._checkpoint = spark, application, checkpoint
        self._control_url, self._status = control_url, status
        self._role, status.role = role, role
        # All tasks of a local Spark take turns on the cores of this process.
        self._is_local = spark is None or str(spark.sparkContext.master).startswith("local")
        status.same_cores = self._is_local and not role.separate
        self._trigger_seconds = trigger_seconds
        self._one_at_a_time, self._sources_by = one_at_a_time, time.monotonic() + SOURCES_SECONDS
        self._control = connect_to_control(control_url)
        # Complex events result from events that were admitted. Holding them back would not reduce their number.
        producer = f"{PIPELINE_PRODUCER}{application.name}"
        self._client = Client(control_url, producer=producer, when_throttled="ignore")
        self.outbox = Outbox(StateStore(self._control, application.name), self._client)
        self._faults = FaultStore(self._control, application.name)
        self._results = ResultQueue(self._control, application.name)
        criteria = dict(application.controls.criteria)
        self._monitor = Monitor(self._control, application.name, application.monitored, criteria)
        self._nodes = Nodes(timeout_seconds=1.0)
        names = application.queues
        controls = application.controls
        producers = application.ordered_producers
        self._dispatcher = Dispatcher(control_url, application.name, names, application.replicas, controls, producers)
        self._replicas = (*application.replicas, *sorted(self._list_retiring()))
        self._reports = BatchReports(self._control, application.name)
        self._publishes_here = False
        # The main process and each replica's process have their own start, and end only their own tasks.
        self._start = TaskStart(self._control, application.name, role.replica or "main")
        self._tasks, self._slots = TaskPlan(self._start), slots
        self._arranger: TaskArranger | None = None
        self._rules: dict[str, ReplicaRules] = {}
        self._ending = threading.Event()
        self._failure: Exception | None = None
        self._queries: list[tuple[StreamingQuery, BatchWork]] = []
        self._threads: list[TaskThread] = []
        self._thread = threading.Thread(target=self._dispatch_events, name="dispatcher", daemon=True)
        self._watch: threading.Thread | None = None
        try:
            self._start_queries(tiers, patience_seconds)
            if INTRA in tiers and role.is_main:
                self._thread.start()
        except BaseException:
            self.end()  # a query that is left behind keeps its name, and no later start succeeds
            raise

    def _list_retiring(self) -> set[str]:
        """Return replicas of an earlier version that still have work: they get nothing new."""
        dispatches = Dispatches(self._control, self._application.name)
        published = self._results.measure_room().published
        others = dispatches.list_replicas() - set(self._application.replicas)
        return {name for name in others if dispatches.list_after(name, published.get(name, 0), 1)}

    def _start_queries(self, tiers: tuple[str, ...], patience_seconds: float) -> None:
        """Start a query for each long-running task, and for each role without a long-running task."""
        works: dict[str, BatchWork] = {}
        roles: list[TaskRole] = []
        if INTRA in tiers:
            self._add_replicas(works, roles, patience_seconds)
        if INTER in tiers and self._role.is_main:
            self._add_combiner(works, roles)
        self._start.renew()
        if self._spark is None:
            self._start_threads(roles)
            return
        if self._slots is not None and roles:
            for role in roles:
                works.pop(role.name)
            self._arrange_tasks(self._spark.sparkContext, self._slots, roles, other_slots=int(bool(works)))
        self._publishes_here = COMBINER in works
        for name, work in works.items():
            source = ResultSource.name() if name == COMBINER else AssignmentSource.name()
            self._query(self._spark, source, name, work)

    def _add_replicas(self, works: dict[str, BatchWork], roles: list[TaskRole], patience_seconds: float) -> None:
        """Add the replicas of this process. Only a replica whose rules run in Arrow can have a long-running task."""
        application, role = self._application, self._role
        board: ReplicaBoard = self._status if role.is_main else ReportingBoard(self._status, self._reports)
        for replica in [role.replica] if role.replica else filter(role.runs, self._replicas):
            rules = ReplicaRules(self._control_url, application, replica, patience_seconds)
            self._rules[replica] = rules
            if self._spark is not None:
                plans = RulePlans(self._spark, rules)
                works[replica] = ReplicaWork(plans, application, replica, self._control, board)
            if (runner := rules.build_local_runner()) is not None:
                roles.append(ReplicaRole(self._control_url, application, replica, runner))

    def _add_combiner(self, works: dict[str, BatchWork], roles: list[TaskRole]) -> None:
        """Add the combiner."""
        application = self._application
        at_work = {operator.name for operator in application.graph.operators}
        StateStore(self._control, application.name).forget_others(at_work)
        places = (self._control_url, application, self._checkpoint.run)
        if self._spark is not None:
            spark = SparkTasks(self._spark.sparkContext)
            works[COMBINER] = InterEventWork(spark, *places, self._control, self.outbox, self._status)
        roles.append(CombinerRole(*places, self._replicas))

    def _start_threads(self, roles: list[TaskRole]) -> None:
        """Start a thread for each role."""
        self._tasks.change(tuple((role,) for role in roles))
        for number in range(len(roles)):
            work = self._build_epochs(run_in_thread, number)
            self._threads.append(TaskThread(_name_task(number), work))

    def _arrange_tasks(self, session: SparkContext, slots: TaskSlots, roles: list[TaskRole], other_slots: int) -> None:
        """Start the long-running tasks. On a cluster, arrange them again when the executors change.

        other_slots: slots for the roles without a long-running task.
        """
        name = self._application.name
        self._arranger = TaskArranger(session, slots, name, self._tasks, roles, other_slots, self._start_epochs)
        self._arranger.arrange()
        if not self._is_local:
            watch = self._arranger.watch
            self._watch = threading.Thread(target=watch, args=(self._ending,), name="slots", daemon=True)
            self._watch.start()

    def _start_epochs(self, number: int) -> None:
        """Start the query whose micro-batches are the epochs of the long-running task with this number (from 0)."""
        if self._spark is None or self._ending.is_set():  # nothing would end the query
            return
        work = self._build_epochs(partial(run_on_spark, self._spark.sparkContext), number)
        self._query(self._spark, EpochSource.name(), _name_task(number), work, trigger_seconds=0.0)

    def _build_epochs(self, run: Callable[[LongTask], object], number: int) -> EpochWork:
        """Return the epochs of the long-running task with this number (from 0)."""

        def build_task() -> LongTask | None:
            planned = self._tasks.await_task(number)
            if planned is None:
                return None
            # The tables are read after the mark, so a table that changes later ends the task.
            roles = renew_runners(planned.roles, self._rules)
            return LongTask(roles, self._start.process, planned.mark, planned.seconds)

        return EpochWork(run, build_task, {"application": self._application.name, "task": _name_task(number)})

    def _query(
        self, spark: SparkSession, source: str, name: str, work: BatchWork, trigger_seconds: float | None = None
    ) -> None:
        seconds = self._trigger_seconds if trigger_seconds is None else trigger_seconds
        options = {
            "control": self._control_url,
            "application": self._application.name,
            "replica": name,
            "replicas": ",".join(self._replicas),
            "controls": json.dumps(self._application.controls.to_document()),
            "wait_seconds": str(SOURCE_WAIT_SECONDS),
            "process": self._start.process,
            "start": self._start.name,
        }
        events = spark.readStream.format(source).options(**options).load()
        writer = events.writeStream.foreachBatch(work).queryName(f"{self._application.name}-{name}")
        writer = writer.option("checkpointLocation", self._checkpoint.locate(name))
        query = writer.trigger(processingTime=f"{seconds} seconds").start()
        self._queries.append((query, work))
        # The query's sources answer, or it fails, or the time is over.
        while self._one_at_a_time and query.isActive and query.status["message"].startswith("Initializing"):
            if time.monotonic() >= self._sources_by or self._ending.is_set():
                return
            time.sleep(0.1)

    def _dispatch_events(self) -> None:
        """Run the dispatcher's thread. It tries an unavailable server again; any other error ends the run."""
        while not self._ending.wait(self._dispatcher.pause_seconds):
            try:
                self._dispatcher.await_events()
                events = self._dispatcher.step(self.outbox.is_full)
                dispatcher = self._dispatcher
                self._status.record_dispatch(dispatcher.cursor, events, dispatcher.stall_reason, dispatcher.skipped)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                log.warning("no events are dispatched: %s", error)
                self._ending.wait(1.0)
            except Exception as error:  # any error is passed to the main thread
                self._failure = error
                return

    def check(self) -> None:
        """Raise what has ended a query or the dispatcher. Called every second."""
        if self._failure is not None:
            raise self._failure
        for query, work in list(self._queries):  # a change of the slots can add queries
            if not query.isActive:
                raise work.failure or query.exception() or WeirError("a query ended unexpectedly")
        for thread in self._threads:
            thread.check()
        self._refresh_tables()
        if self._arranger is not None:
            if self._arranger.failure is not None:
                raise self._arranger.failure
            if self._watch is None:
                self._arranger.arrange()
        if not self._role.is_main:
            if self._arranger is not None:
                self._reports.deliver(self._status, frozenset({self._start.process}))
            return
        if self._publishes_here:
            self.outbox.retry()
        else:
            self.outbox.count_waiting()
        self._status.outbox, self._status.outbox_full = self.outbox.waiting, self.outbox.is_full
        try:
            self._reports.deliver(self._status)
            self._status.record_monitored(self._monitor.step())
            self._faults.deliver(self._nodes, self._results.measure_room().published)
        except (redis.ConnectionError, redis.TimeoutError, BadInput) as error:
            log.warning("Updating criteria or delivering dead letters failed; trying again: %s", error)

    def _refresh_tables(self) -> None:
        """Read changed reference tables, and restart the long-running tasks with them."""
        seen = [table.seen for table in self._application.tables]
        for table in self._application.tables:
            table.refresh()
        has_tasks = self._arranger is not None or bool(self._threads)
        if has_tasks and seen != [table.seen for table in self._application.tables]:
            self._start.renew()

    def end(self) -> None:
        """Stop dispatching, let running batches finish, and stop between two. Safe at any time.

        Interrupted work is repeated at the next start.
        """
        self._ending.set()
        for thread in (self._thread, self._watch):
            if thread is not None and thread.is_alive():
                thread.join(STOPPING_SECONDS)
        with suppress(redis.ConnectionError, redis.TimeoutError):
            self._start.end()
        self._tasks.end()
        deadline = time.monotonic() + STOPPING_SECONDS
        for query, _ in self._queries:
            _end_query(query, deadline)
        for task in self._threads:
            task.end(deadline - time.monotonic())
        if self._arranger is not None:
            self._arranger.give_back()
        with suppress(Exception):  # the next start publishes what is left
            self.outbox.await_published()
        self._dispatcher.close()
        self._nodes.close()
        self._client.close()
        self._control.close()


def _name_task(number: int) -> str:
    return f"task{number + 1}"


def _end_query(query: StreamingQuery, deadline: float) -> None:
    pause = threading.Event()
    try:
        # A source that waits for something to do is in no batch.
        while (
            query.isActive
            and query.status["isTriggerActive"]
            and not query.status["message"].startswith("Getting offsets")
            and time.monotonic() < deadline
        ):
            pause.wait(0.05)
        query.stop()
    except (PySparkException, Py4JError) as error:
        log.warning("a query was stopped in the middle of a batch, which is repeated: %s", describe_error(error))
