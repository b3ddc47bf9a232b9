"""Helpers of the combiner: long-running tasks that execute a part of the operators' tasks of a batch.

The combiner puts the tasks into a list, executes the first task itself, and takes back the tasks that no helper has
taken. A helper replies with its counts. If a helper does not reply in time, the combiner executes the helper's tasks,
too. This is safe, because a task that is already written is skipped (`tiers.state`).

| key | type | holds |
|---|---|---|
| `weir:pipeline:task-orders:{app}` | list | `HelperOrder` (JSON): a task that a helper may take |
| `weir:pipeline:task-answers:{app}` | list | `HelperAnswer` (JSON): the counts of a task that a helper has executed |
"""

import logging
import secrets
from dataclasses import dataclass, field

import msgspec
import redis

from common.stored_document import get_decoder
from queues import keys
from queues.control.replies import expect_bytes
from workers.pipeline.tiers.finished_batch import OperatorCount
from workers.pipeline.tiers.operators import Unit, Work

REPLY_TIMEOUT_SECONDS = 3.0  # timeout for the reply of a helper that has taken a task
TASK_SECONDS = 0.002  # the time that an additional task costs

log = logging.getLogger("weir.pipeline")


@dataclass(frozen=True)
class HelperOrder:
    """A task of a batch. attempt: the combiner's attempt at the level. number: number of the task in the attempt."""

    attempt: str
    number: int
    batch: int
    level: int
    units: tuple[Unit, ...]


@dataclass(frozen=True)
class HelperAnswer:
    attempt: str
    number: int
    counts: tuple[OperatorCount, ...] = field(default_factory=tuple)


class TaskLists:
    """Reads and writes the keys."""

    def __init__(self, control: redis.Redis, application: str) -> None:
        self._control = control
        self._orders = keys.PIPELINE_TASK_ORDERS.build(application)
        self._answers = keys.PIPELINE_TASK_ANSWERS.build(application)

    def clear(self) -> None:
        """Delete the entries of an earlier combiner."""
        self._control.delete(self._orders, self._answers)

    def order(self, orders: list[HelperOrder]) -> None:
        self._control.rpush(self._orders, *(msgspec.json.encode(order) for order in orders))

    def take_back(self) -> HelperOrder | None:
        """Return the last task that no helper has taken; None if there is none."""
        text = expect_bytes(self._control).rpop(self._orders)
        return None if text is None else self._decode_order(text)

    def take(self, seconds: float) -> HelperOrder | None:
        """Return a task to execute, or None if there is none within this time."""
        found = expect_bytes(self._control).blpop([self._orders], seconds)
        return None if found is None else self._decode_order(found[1])

    def answer(self, answer: HelperAnswer) -> None:
        self._control.rpush(self._answers, msgspec.json.encode(answer))

    def await_answer(self, seconds: float) -> HelperAnswer | None:
        found = expect_bytes(self._control).blpop([self._answers], seconds)
        if found is None:
            return None
        answer: HelperAnswer = get_decoder(HelperAnswer).decode(found[1])
        return answer

    def _decode_order(self, text: bytes) -> HelperOrder:
        order: HelperOrder = get_decoder(HelperOrder).decode(text)
        return order


class HelpedTasks:
    """Runs the operators' tasks in this process and those of helpers (`inter_event.TaskRunner`)."""

    task_seconds = TASK_SECONDS

    def __init__(self, lists: TaskLists, helpers: int, reply_timeout_seconds: float = REPLY_TIMEOUT_SECONDS) -> None:
        self._lists, self._reply_timeout_seconds = lists, reply_timeout_seconds
        self.cores = 1 + helpers
        lists.clear()

    def run(self, work: Work, tasks: list[list[Unit]]) -> list[OperatorCount]:
        if self.cores == 1 or len(tasks) == 1:
            return [count for units in tasks for count in work(units)]
        attempt = secrets.token_hex(8)
        left = {number: tuple(units) for number, units in enumerate(tasks[1:], 1)}
        self._lists.order(
            [HelperOrder(attempt, number, work.batch, work.level, units) for number, units in left.items()]
        )
        done = work(tasks[0])
        while (order := self._lists.take_back()) is not None:
            if order.attempt == attempt and order.number in left:
                done += work(left.pop(order.number))
        while left:
            answer = self._lists.await_answer(self._reply_timeout_seconds)
            if answer is None:
                log.warning("A helper of the combiner did not reply in time. The combiner executes the helper's tasks.")
                return done + [count for units in left.values() for count in work(units)]
            if answer.attempt == attempt and left.pop(answer.number, None) is not None:
                done += answer.counts
        return done
