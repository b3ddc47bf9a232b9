"""An application in the pipeline process: started, watched, started again when it fails, and changed to
another version between two batches.
"""

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import redis
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from queues.errors import BadInput, WeirError
from workers.pipeline.declaration.declaration import Application, application_of_text
from workers.pipeline.declaration.declared import Declarations, Declared
from workers.pipeline.rules.rule_sql import check_rules, empty_events
from workers.pipeline.runtime.restart import lock_checkpoint, open_checkpoint, reset_checkpoint
from workers.pipeline.runtime.running import Running
from workers.pipeline.status.published import Statuses
from workers.pipeline.tiers.batch_work import sentence

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 15.0
LONG_ENOUGH_SECONDS = 60.0  # after which a failure is a new one

log = logging.getLogger("weir.pipeline")


@dataclass(frozen=True)
class HostingPlace:
    """Where applications run: the session, the control server, the folders, the times."""

    spark: SparkSession
    control: redis.Redis
    control_url: str
    folder: Path
    tables: Path
    trigger_seconds: float
    patience_seconds: float


class Hosted:
    """Raises BadInput where its first version is wrong, or its checkpoint can't be continued."""

    def __init__(
        self,
        place: HostingPlace,
        declared: Declared,
        declarations: Declarations,
        statuses: Statuses,
        reset: bool,
    ) -> None:
        self._place, self._declarations, self._statuses = place, declarations, statuses
        self.declared = self.refused = declared
        self._application = self._checked(declared)
        self._folder = place.folder / declared.name
        self._lock: IO[str] = lock_checkpoint(self._folder)
        if reset:
            reset_checkpoint(self._folder, place.control, declared.name)
        self._checkpoint = open_checkpoint(self._folder, place.control, declared.name)
        self._status = statuses.board(self._application)
        self._running: Running | None = None
        self._pause_seconds, self._started, self._start_at = FIRST_PAUSE_SECONDS, 0.0, 0.0
        declarations.note_at_work(declared)

    def _checked(self, declared: Declared) -> Application:
        """Raises BadInput, also where Spark does not understand a rule."""
        application = application_of_text(declared.text, self._place.tables, declared.name)
        if application.name != declared.name:
            raise BadInput("name", f"is {application.name}, but the application is {declared.name}")
        events = empty_events(self._place.spark, application.layout)
        graph = application.graph
        check_rules(events, application.rules, graph.columns, application.controls.criteria)
        return application

    def step(self, wanted: Declared) -> None:
        """Called each second: follows what is wanted, and mends what has failed. Raises BadInput where a
        start can't mend it.
        """
        if wanted not in (self.declared, self.refused):
            self._change(wanted)
        try:
            if self._running is not None:
                self._running.check()
            elif time.monotonic() >= self._start_at:
                self._start()
        except BadInput as error:
            self._status.enter_state("failed", str(error))
            raise
        except (PySparkException, WeirError, redis.RedisError) as error:
            self._fail(error)

    def _change(self, wanted: Declared) -> None:
        """To another version, from the offsets of this one; a wrong one is refused, and this one goes on."""
        try:
            application = self._checked(wanted)
        except BadInput as error:
            self.refused = wanted
            log.error("version %d of %s is refused: %s", wanted.version, wanted.name, error)
            self._declarations.note_at_work(self.declared, str(error))
            return
        self.end()
        self.declared = self.refused = wanted
        self._application = application
        self._status = self._statuses.board(application)
        self._declarations.note_at_work(wanted)
        log.info("version %d of %s is at work", wanted.version, wanted.name)

    def _start(self) -> None:
        place = self._place
        self._started = time.monotonic()
        self._running = Running(
            place.spark,
            place.control_url,
            self._application,
            self._checkpoint,
            self._status,
            place.trigger_seconds,
            place.patience_seconds,
            # A start that failed may have failed for want of the host's time: the next one asks for less.
            one_at_a_time=self._pause_seconds > FIRST_PAUSE_SECONDS,
        )
        self._status.enter_state("running")

    def _fail(self, error: Exception) -> None:
        log.error("%s failed and is started again: %s", self.declared.name, error)
        self._status.enter_state("failed", sentence(error))
        if time.monotonic() - self._started > LONG_ENOUGH_SECONDS:
            self._pause_seconds = FIRST_PAUSE_SECONDS
        self._start_at = time.monotonic() + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
        self.end()

    def end(self) -> None:
        """Stops it between two batches."""
        running, self._running = self._running, None
        if running is not None:
            running.end()

    def leave(self) -> None:
        """Stops it for good."""
        self._status.enter_state("stopping")
        self.end()
        self._lock.close()
