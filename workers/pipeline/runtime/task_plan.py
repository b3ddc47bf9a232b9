"""The distribution of an application's roles over long-running tasks, for the slots of the Spark session.

On a cluster, executors join and leave. When the number of slots changes, the roles are distributed again, and the
running tasks end after their current batch. The tasks of a lost executor therefore start on other executors
immediately, although all slots there were in use.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import redis
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from workers.pipeline.runtime.long_tasks import (
    ALTERNATING_SECONDS,
    EPOCH_SECONDS,
    CombinerRole,
    HelperRole,
    TaskRole,
    TaskStart,
    prepare_worker,
)

CHECK_SECONDS = 0.2  # how often the number of slots is read; a call to Java that takes less than a millisecond
# How long a new executor has before its Python workers start. They would delay its first heartbeats.
SETTLING_SECONDS = 2.0
MAX_PREPARATIONS, MAX_EMPTY_ROUNDS = 20, 3
IDLE_SECONDS = 20.0  # how long a query without a task waits for one

log = logging.getLogger("weir.pipeline")


class TaskSlots:
    """Divides the slots of a session among its applications. Thread-safe.

    count: returns the current number of slots.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        self._count, self._wanted = count, dict[str, int]()
        self._lock = threading.Lock()

    def allot(self, application: str, wanted: int) -> int:
        """Return the number of slots of an application: the wanted number, or an equal part of all slots."""
        with self._lock:
            self._wanted[application] = wanted
            # If an application needs less than an equal part, the others share the rest.
            waiting = sorted(self._wanted.items(), key=lambda item: (item[1], item[0]))
        left, part = self._count(), 0
        for place, (name, most) in enumerate(waiting):
            part = min(most, left // (len(waiting) - place))
            left -= part
            if name == application:
                break
        return part

    def give_back(self, application: str) -> None:
        """Leave the slots of an application to the others."""
        with self._lock:
            self._wanted.pop(application, None)


def arrange_roles(roles: Sequence[TaskRole], helpers: int, slots: int) -> tuple[tuple[TaskRole, ...], ...]:
    """Distribute the roles over tasks, at most one for each slot.

    Each role gets its own task, unless there are more roles than slots. Helpers of the combiner get the other slots. If
    no slot is left, the tasks without the combiner also help it. helpers: the maximum number of helpers.
    """
    tasks = min(len(roles), max(1, slots))
    shared = [tuple(roles[first::tasks]) for first in range(tasks)]
    combiner = next((role for role in roles if isinstance(role, CombinerRole)), None)
    if combiner is None:
        return tuple(shared)
    free = max(0, slots - tasks)
    helpers = min(helpers, free or tasks - 1)
    informed = replace(combiner, helpers=helpers)
    shared = [tuple(informed if role is combiner else role for role in own) for own in shared]
    helping = [
        HelperRole(combiner.control_url, combiner.application, combiner.run, number) for number in range(1, helpers + 1)
    ]
    if free:
        return (*shared, *((helper,) for helper in helping))
    places = [place for place, own in enumerate(shared) if informed not in own]
    for place, helper in zip(places, helping, strict=False):
        shared[place] = (*shared[place], helper)
    return tuple(shared)


@dataclass(frozen=True)
class PlannedTask:
    """A task to start now. mark: its `TaskStart.mark`. seconds: duration of its epoch."""

    roles: tuple[TaskRole, ...]
    mark: bytes
    seconds: float


class TaskPlan:
    """The tasks of an application by number. The main process changes it, and the queries take their tasks from it."""

    def __init__(self, start: TaskStart) -> None:
        self._start = start
        self._tasks: tuple[tuple[TaskRole, ...], ...] = ()
        self._seconds, self._has_ended = EPOCH_SECONDS, False
        self._changed = threading.Condition()

    def change(self, tasks: tuple[tuple[TaskRole, ...], ...], seconds: float = EPOCH_SECONDS) -> None:
        """Replace the tasks. The running tasks end after their current batch."""
        with self._changed:
            self._tasks, self._seconds = tasks, seconds
            self._start.renew()
            self._changed.notify_all()

    def await_task(self, number: int, seconds: float = IDLE_SECONDS) -> PlannedTask | None:
        """Return the task with this number (from 0), or None if there is none within this time."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or number < len(self._tasks), seconds)
            if self._has_ended or number >= len(self._tasks):
                return None
            return PlannedTask(self._tasks[number], self._start.mark, self._seconds)

    def end(self) -> None:
        """End the waits of all queries, and return no more tasks."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()


class TaskArranger:
    """Arranges the tasks of an application for its current slots.

    roles: without helpers. other_slots: slots that the application needs for micro-batches. start_query: starts the
    query of the task with a number, from 0.
    """

    def __init__(
        self,
        spark: SparkContext,
        slots: TaskSlots,
        application: str,
        plan: TaskPlan,
        roles: Sequence[TaskRole],
        other_slots: int,
        start_query: Callable[[int], None],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._spark, self._slots, self._application, self._plan = spark, slots, application, plan
        self._roles = tuple(roles)
        self._other_slots, self._start_query, self._pause = other_slots, start_query, pause
        self._allotted, self._queries = -1, 0
        self._warm_up: threading.Thread | None = None
        self.failure: Exception | None = None

    def arrange(self) -> None:
        """Change the tasks if the number of slots has changed."""
        most_helpers = max(0, self._spark.defaultParallelism - 1)
        wanted = len(self._roles) + most_helpers + self._other_slots
        allotted = self._slots.allot(self._application, wanted)
        if allotted == self._allotted:
            self._warm_up = None
            return
        if allotted > self._allotted >= 0 and not self._is_warm(allotted):
            return
        if self._allotted >= 0:
            log.info("The slots of %s changed from %d to %d", self._application, self._allotted, allotted)
        self._warm_up = None
        own = allotted - self._other_slots
        tasks = arrange_roles(self._roles, most_helpers, own)
        self._plan.change(tasks, EPOCH_SECONDS if own > 0 else ALTERNATING_SECONDS)
        self._allotted = allotted
        while self._queries < len(tasks):
            self._start_query(self._queries)
            self._queries += 1

    def _is_warm(self, allotted: int) -> bool:
        """Return whether new executors have started their Python workers.

        The start takes seconds. The tasks move only after it, so that no batch waits for it.
        """
        if self._warm_up is None:
            new = allotted - self._allotted
            self._warm_up = threading.Thread(target=self._prepare_workers, args=(new,), daemon=True, name="warm-up")
            self._warm_up.start()
        return not self._warm_up.is_alive()

    def _prepare_workers(self, tasks: int) -> None:
        """Run tasks until this number of new workers had one. Between two epochs, an old worker can also take one."""
        prepared = empty_rounds = 0
        try:
            for _ in range(MAX_PREPARATIONS):
                self._pause(SETTLING_SECONDS)
                new = sum(self._spark.parallelize(range(tasks), tasks).mapPartitions(prepare_worker).collect())
                prepared += new
                empty_rounds = 0 if new else empty_rounds + 1
                # If no worker is new, the slots come from another application.
                if prepared >= tasks or empty_rounds == MAX_EMPTY_ROUNDS:
                    return
        except (PySparkException, Py4JError) as error:
            log.warning("Failed to prepare the Python workers of new executors: %s", error)

    def watch(self, ending: threading.Event) -> None:
        """Arrange the tasks whenever the number of slots changes, until the application ends."""
        while not ending.wait(CHECK_SECONDS):
            try:
                self.arrange()
            except (redis.ConnectionError, redis.TimeoutError) as error:
                log.warning("Failed to arrange the tasks for the current slots; trying again: %s", error)
            except Exception as error:  # any error is passed to the main thread
                self.failure = error
                return

    def give_back(self) -> None:
        self._slots.give_back(self._application)
