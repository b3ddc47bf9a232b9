"""A plant on which every call has a deadline: a caller never waits longer, whatever the plant answers.

The protocol of an adapter has timeouts of its own, but most of them apply to a single read. A server that sends a byte
now and then never exceeds them. So each call runs in a thread, which is abandoned when it is late. The call may still
take effect. It then counts as an order with an unknown result.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import ParamSpec, TypeVar

from controllers.parallelism.measured_topology import MeasuredTopology
from workers.documents.plants import SetValue
from workers.plants.foreign.answer_limit import order_seconds
from workers.plants.foreign.kind import Adapter, TaskRequest
from workers.plants.plant import ElasticPlant, PlantUnavailable

CLOSE_SECONDS = 1.0
P = ParamSpec("P")
T = TypeVar("T")


class BoundedPlant(ElasticPlant):
    """A plant on which every call ends within `seconds`; a late call raises `PlantUnavailable`."""

    def __init__(self, name: str, adapter: Adapter, seconds: float | None = None) -> None:
        self.adapter, self._name, self._late = adapter, name, threading.Event()
        self._seconds = order_seconds() if seconds is None else seconds

    def get_topology(self) -> MeasuredTopology:
        return self._call_within(self.adapter.get_topology)

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        self._call_within(self.adapter.set_parallelism, tasks)

    def hold(self, seconds: float) -> None:
        self._call_within(self.adapter.hold, seconds)

    def release(self) -> None:
        self._call_within(self.adapter.release)

    def read_before(self, kind: str, subject: str, value: str, earlier: str = "") -> str:
        return self._call_within(self.adapter.read_before, kind, subject, value, earlier)

    def intervene(self, kind: str, subject: str, value: str) -> None:
        self._call_within(self.adapter.intervene, kind, subject, value)

    def undo(self, kind: str, subject: str, before: str) -> None:
        self._call_within(self.adapter.undo, kind, subject, before)

    def check_restored(self, kind: str, subject: str, before: str) -> str:
        return self._call_within(self.adapter.check_restored, kind, subject, before)

    def list_set_values(self) -> Sequence[SetValue]:
        return self._call_within(self.adapter.list_set_values)

    def read_tasks(self, operators: Sequence[str]) -> Mapping[str, int]:
        return self._call_within(self.adapter.read_tasks, operators)

    def end_observation(self) -> Sequence[tuple[str, str]]:
        return self._call_within(self.adapter.end_observation)

    def load_tasks_before(self) -> Mapping[str, Mapping[str, float]]:
        """Return operator → {before, tasks, at} of the operators whose tasks Weir has changed."""
        return {} if self.adapter.tasks_before is None else self.adapter.tasks_before.load_changed()

    def forget_tasks_before(self, operators: Sequence[str]) -> None:
        """Forget the tasks that these operators had before Weir: they were restored."""
        if self.adapter.tasks_before is not None:
            self.adapter.tasks_before.forget(operators)

    def check_task(self, request: TaskRequest) -> None:
        self._call_within(self.adapter.check_task, request)

    def start_task(self, request: TaskRequest) -> None:
        self._call_within(self.adapter.start_task, request)

    def revoke_tasks(self, task_ids: Sequence[str], terminate: bool) -> None:
        self._call_within(self.adapter.revoke_tasks, task_ids, terminate)

    def close(self) -> None:
        """Close the adapter now, or after a late order has ended: the order is not interrupted."""
        if not self._late.is_set():
            with suppress(PlantUnavailable):
                call_within(CLOSE_SECONDS, self._name, self.adapter.close)

    def _call_within(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        def ask() -> T:
            try:
                return call(*arguments, **named)
            finally:
                if self._late.is_set():
                    self.adapter.close()

        try:
            return call_within(self._seconds, self._name, ask)
        except PlantTimeout:
            self._late.set()
            raise


class PlantTimeout(PlantUnavailable):
    """A call to the plant that is still in progress."""


def call_within(seconds: float, plant: str, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return or raise the result of the call. Raise `PlantTimeout` if it takes longer than `seconds`."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call(*arguments, **named))
        except BaseException as error:  # The exception is raised in the thread of the caller.
            errors.append(error)

    thread = threading.Thread(target=run, name=f"order to {plant}", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise PlantTimeout(f"{plant} did not complete the request within {seconds:g} s. It may still take effect.")
    return answers[0]
