"""An application in the pipeline process.

It is started, monitored, restarted after a failure, and changed to another version between two batches.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

import redis
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from common.errors import BadInput, WeirError
from common.files import resolve_inside_folder
from workers.documents.pipeline import IN_PROCESS, ON_SPARK, PipelineOrder
from workers.pipeline.declaration.declaration import Application, check_readers, parse_application_text
from workers.pipeline.declaration.declared import NO_ORDER, Declarations, DeclarationText
from workers.pipeline.declaration.replicas import MAIN, ProcessRole
from workers.pipeline.matching.matcher import check_conditions
from workers.pipeline.rules.arrow_rules import check_arrow_rules, find_spark_reason
from workers.pipeline.rules.rule_sql import check_rules, create_empty_events
from workers.pipeline.runtime.restart import (
    explain_missing,
    is_current,
    lock_checkpoint,
    open_checkpoint,
    open_replica_checkpoint,
    reset_checkpoint,
)
from workers.pipeline.runtime.running import Running
from workers.pipeline.runtime.spark_session import SparkNeeded, SparkOnDemand
from workers.pipeline.runtime.task_plan import TaskSlots
from workers.pipeline.status.published import Statuses
from workers.pipeline.status.status import ApplicationLoad
from workers.pipeline.tiers.batch_work import describe_error

FIRST_SECONDS, MAX_SECONDS = 1.0, 15.0
SESSION_TRIES = 4
LONG_ENOUGH_SECONDS = 60.0  # after which a failure counts as a new one


class RestartBackoff:
    """The backoff of one application in one process. Call `record_start` and `record_failure` in turn."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.tries, self._started_at, self._due_at = 0, 0.0, 0.0

    @property
    def is_due(self) -> bool:
        return self._monotonic() >= self._due_at

    @property
    def gives_up(self) -> bool:
        """Return whether another try in this process is of no use."""
        return self.tries >= SESSION_TRIES

    def record_start(self) -> None:
        self._started_at = self._monotonic()

    def record_failure(self) -> float:
        """Record a failure, and return the seconds until the next try."""
        if self._monotonic() - self._started_at > LONG_ENOUGH_SECONDS:
            self.tries = 0
        pause: float = min(FIRST_SECONDS * 2**self.tries, MAX_SECONDS)
        self.tries += 1
        self._due_at = self._monotonic() + pause
        return pause

    def compute_wait_seconds(self) -> float:
        """Return the seconds until the next check of what a start needs and is missing."""
        self._due_at = self._monotonic() + FIRST_SECONDS
        return FIRST_SECONDS

    def forget(self) -> None:
        """Forget all failures: a person starts it, immediately."""
        self.tries, self._due_at = 0, 0.0


NEW_PROCESS_SECONDS = 30.0  # that a new process takes until it works

log = logging.getLogger("weir.pipeline")


@dataclass(frozen=True)
class HostingPlace:
    """The place where applications run: the session, the control server, the folders, and the times."""

    session: SparkOnDemand
    control: redis.Redis
    control_url: str
    folder: Path
    tables: Path
    trigger_seconds: float
    patience_seconds: float
    role: ProcessRole = MAIN
    slots: TaskSlots | None = None


class SessionExpired(WeirError):  # noqa: N818
    """Raised when this process can't run the application any more, but a new one may."""


class HostedApplication:
    """A hosted application. Raises `BadInput` if its first version is invalid, or its checkpoint can't be continued."""

    def __init__(
        self,
        place: HostingPlace,
        declared: DeclarationText,
        declarations: Declarations,
        statuses: Statuses,
        reset: bool,
        order: PipelineOrder = NO_ORDER,
        others: Mapping[str, "HostedApplication"] = MappingProxyType({}),
    ) -> None:
        """Load the first version. others: the applications of this process by name, including this one once hosted."""
        self._place, self._declarations, self._statuses = place, declarations, statuses
        self._others = others
        self.refused = declared
        self.spark_reason: str | None = None  # why the application can't run without Spark
        self.declared, self._application, why = self._find_first_usable(declared)
        self._folder = resolve_inside_folder(place.folder, declared.name, "name")
        self._lock: IO[str] = lock_checkpoint(self._folder)
        if reset:
            reset_checkpoint(self._folder, place.control, declared.name)
        open_own = open_checkpoint if place.role.is_main else open_replica_checkpoint
        try:
            self._checkpoint = open_own(self._folder, place.control, declared.name)
        except WeirError:
            self._lock.close()
            raise
        self._status = statuses.board(self._application)
        self._running: Running | None = None
        self._runs_on: SparkSession | None = None
        self._backoff = RestartBackoff()
        self._lacked = ""  # missing for a start
        self._order, self._stands = order, False
        declarations.note_at_work(self.declared, why)

    def _find_first_usable(self, wanted: DeclarationText) -> tuple[DeclarationText, Application, str | None]:
        """Return the requested version, or, if that is rejected, the previous version and the reason."""
        try:
            return wanted, self._check_declared(wanted), None
        except BadInput as error:
            before = self._declarations.load_running().get(wanted.name)
            if before is None or before.version == wanted.version:
                raise
            log.error("version %d of %s is rejected: %s", wanted.version, wanted.name, error)
            old = DeclarationText(before.name, before.version, before.text)
            try:
                return old, self._check_declared(old), str(error)
            except BadInput:
                raise error from None

    def _check_declared(self, declared: DeclarationText) -> Application:
        """Check a declaration.

        Raises `BadInput`, also if Spark rejects a rule, and `SparkNeeded` if only Spark can check it, and is not there.
        """
        application = parse_application_text(declared.text, self._place.tables, declared.name)
        if application.name != declared.name:
            raise BadInput("name", f"must be {declared.name}, the name of the application, not {application.name}")
        for other in (hosted for hosted in self._others.values() if hosted is not self):
            check_readers(application, other.declared.name, other.queues)
        rules, layout, graph = application.rules, application.layout, application.graph
        spark_reason = find_spark_reason(rules, layout, application.engine)
        if spark_reason is None:
            kinds = check_arrow_rules(rules, layout, graph.columns)
        elif (spark := self._place.session.spark) is None:
            raise SparkNeeded(f"{declared.name} can't run without it: {spark_reason}")
        else:
            events = create_empty_events(spark, layout)
            kinds = check_rules(events, rules, graph.columns, application.controls.criteria)
        check_conditions(graph.patterns, kinds)
        self.spark_reason = spark_reason
        return application

    @property
    def queues(self) -> tuple[str, ...]:
        return self._application.queues

    def step(self, declared: DeclarationText, order: PipelineOrder = NO_ORDER) -> None:
        """Follow the requested version and restart after failures. Called every second.

        Raises `BadInput` if a restart can't fix the failure, and `SessionExpired` if one in this process can't.
        """
        if not self._place.role.is_main and not is_current(self._checkpoint, self._place.control, self.declared.name):
            raise SessionExpired(f"{self.declared.name} was reset; a new process starts from its new run")
        self._show_place()
        if declared not in (self.declared, self.refused):
            self._change(declared)
        self._obey(order)
        if order.stopped:
            return
        try:
            if self._running is not None and self._runs_on is not self._place.session.spark:
                self._move_to_spark()
            if self._running is not None:
                self._running.check()
            elif self._backoff.is_due and not self._is_waiting():
                self._run()
                self._status.enter_state("running")
        except BadInput as error:
            self._status.enter_state("failed", str(error))
            raise
        except Py4JError:
            raise  # Spark's own process is gone, so this process is of no use any more
        except Exception as error:  # any error: a failed application is tried again
            self._fail(error)

    def _show_place(self) -> None:
        session = self._place.session
        self._status.place = IN_PROCESS if session.spark is None else ON_SPARK
        self._status.place_reason = session.explain_place()

    def _run(self) -> None:
        place = self._place
        self._backoff.record_start()
        self._runs_on = place.session.spark
        self._running = Running(
            self._runs_on,
            place.control_url,
            self._application,
            self._checkpoint,
            self._status,
            place.trigger_seconds,
            place.patience_seconds,
            # A start may have failed because the host was busy: the next one needs less at a time.
            one_at_a_time=self._backoff.tries > 0,
            role=place.role,
            slots=place.slots,
        )

    def _move_to_spark(self) -> None:
        """Continue on Spark between two batches."""
        log.info("%s continues on Spark", self.declared.name)
        self.end()
        self._run()
        self._status.continue_in_another_place()

    def measure_load(self) -> ApplicationLoad:
        return self._status.measure_load()

    def _obey(self, order: PipelineOrder) -> None:
        """Carry out the order of a person: stop, start, or restart."""
        before, self._order = self._order, order
        if order != before and self._status.stuck_seconds:
            # Spark would wait for the task that hangs, and could not even stop a query.
            raise SessionExpired(f"{self.declared.name} hangs; a new process executes the request of {order.by}")
        if order.stopped:
            if not self._stands:
                log.info("%s was stopped by %s: %s", self.declared.name, order.by, order.reason)
                self.end()
                self._status.enter_state("stopped")
            self._stands = True
        elif order.restart != before.restart or self._stands:
            log.info("%s was started by %s: %s", self.declared.name, order.by, order.reason)
            if self._running is None and self._backoff.tries:
                raise SessionExpired(f"{self.declared.name} is started in a new process, as {order.by} requested")
            self.end()
            self._backoff.forget()
            self._status.enter_state("starting")
            self._stands = False

    def _change(self, declared: DeclarationText) -> None:
        """Change to another version, from the offsets of this one, which keeps running if the other is invalid.

        If only Spark can run the other version, this one also keeps running while Spark starts.
        """
        try:
            application = self._check_declared(declared)
        except SparkNeeded as need:
            self._place.session.request(str(need))
            return
        except BadInput as error:
            self.refused = declared
            log.error("version %d of %s is rejected: %s", declared.version, declared.name, error)
            self._declarations.note_at_work(self.declared, str(error))
            return
        self.end()
        self.declared = self.refused = declared
        self._application = application
        self._status = self._statuses.board(application)
        self._show_place()
        if self._stands:
            self._status.enter_state("stopped")
        self._declarations.note_at_work(declared)
        log.info("version %d of %s is running", declared.version, declared.name)

    def _is_waiting(self) -> bool:
        """Return whether something that a start needs is missing.

        A start that fails for lack of it says nothing about this process, and the pause after it would be longer than
        the wait.
        """
        lacked, self._lacked = self._lacked, explain_missing(self._folder, self._place.control)
        if not self._lacked:
            return False
        self._backoff.compute_wait_seconds()
        if self._lacked != lacked:
            log.warning("%s is waiting: %s", self.declared.name, self._lacked)
            self._status.enter_state("failed", f"waiting: {self._lacked}")
        return True

    def _fail(self, error: Exception) -> None:
        why = describe_error(error)
        log.error("%s failed and is restarted: %s", self.declared.name, error)
        self._lacked = explain_missing(self._folder, self._place.control)
        pause_seconds = self._backoff.compute_wait_seconds() if self._lacked else self._backoff.record_failure()
        gives_up = self._backoff.gives_up
        self._status.enter_state("failed", why, NEW_PROCESS_SECONDS if gives_up else pause_seconds)
        self.end()
        if gives_up or not self._can_start_query():
            raise SessionExpired(f"{self.declared.name} failed repeatedly ({why}); a new process takes over")

    def _can_start_query(self) -> bool:
        """Return whether the session lives, and no query of this application is left in it.

        A query that is left would keep its name.
        """
        if (spark := self._runs_on) is None:
            return True
        if spark.sparkContext._jsc is None or spark.sparkContext._jsc.sc().isStopped():
            return False
        ours = f"{self.declared.name}-"
        return not any((query.name or "").startswith(ours) for query in spark.streams.active)

    def end(self) -> None:
        """Stop it between two batches."""
        running, self._running = self._running, None
        if running is not None:
            running.end()

    def leave(self) -> None:
        self._status.enter_state("stopping")
        self.end()
        self._lock.close()
