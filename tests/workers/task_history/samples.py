"""Tasks and events of a made-up shop."""

import uuid
from collections.abc import Iterator
from random import Random

from workers.task_history.record import FAILED, RECEIVED, STARTED, SUCCEEDED, TaskUpdate
from workers.task_history.recorder import TaskRecorder

NOON = 1_790_000_000.0
TRACEBACK = 'Traceback (most recent call last):\n  File "/app/shop/pay.py", line {line}, in pay\n    charge(order)\n'


class HeldLease:
    """A lease that nobody else wants."""

    def __init__(self, fence: int = 1, is_free: bool = True) -> None:
        self.fence: int | None = fence
        self.is_free = is_free

    def acquire(self, at_least: int = 0) -> int | None:
        self.fence = max(self.fence or 0, at_least + 1)
        return self.fence if self.is_free else None

    def renew(self) -> bool:
        return self.is_free

    def release(self) -> bool:
        return True


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def begin_recorder(plant: str = "shop", lease: HeldLease | None = None, clock: Clock | None = None) -> TaskRecorder:
    recorder = TaskRecorder(plant, lease or HeldLease(), clock or Clock())
    recorder.connect(NOON)
    return recorder


def make_life(number: int, at: float = NOON, **fields: object) -> Iterator[TaskUpdate]:
    """The events of one task, which fails if it is given an error."""
    task_id = str(uuid.UUID(int=Random(number).getrandbits(128)))
    given = {
        "name": "shop.pay",
        "args": f"({number},)",
        "kwargs": f"{{'customer': 'customer{number}@example.com'}}",
        "queue": "pay",
        "worker": "w1@shop",
        "error": "",
        "traceback": "",
        **fields,
    }
    worker, end = given.pop("worker"), {name: given.pop(name) for name in ("error", "traceback")}
    yield TaskUpdate(id=task_id, state=RECEIVED, at=at, time=at, worker=worker, are_exact=True, **given)
    yield TaskUpdate(id=task_id, state=STARTED, at=at + 0.1, time=at + 0.1, worker=worker)
    state = FAILED if end["error"] else SUCCEEDED
    yield TaskUpdate(id=task_id, state=state, at=at + 0.3, time=at + 0.3, worker=worker, run_seconds=0.2, **end)
