"""A task history to retry, and a place in memory that retried tasks are sent to."""

from datetime import UTC, datetime

from workers.plants.foreign.retry_outlet import StagingLost
from workers.plants.plant import PlantUnavailable
from workers.retries import plans
from workers.retries.items import PaceLimits
from workers.retries.plans import NewPlan
from workers.retries.selection import select
from workers.task_history.query import TaskQuery
from workers.task_history.record import FAILED, SUCCEEDED, TaskRecord
from workers.task_history.recorder import record_finished

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
PLANT = "shop"


def build_failed(number, **more):
    at = NOW.timestamp() - 10_000 + number
    known = {
        "name": "shop.pay",
        "queue": "pay",
        "args": f"({number},)",
        "kwargs": "{}",
        "are_exact": True,
        "received": at - 1,
        "ended": at,
        "error": "ConnectionError('gone')",
    }
    return TaskRecord(id=f"task-{number}", state=FAILED, at=at, plant=PLANT, **(known | more))


def store(*records):
    record_finished(PLANT, records)


def store_failed(count):
    store(*(build_failed(number) for number in range(count)))


FAST = PaceLimits(1_000.0, 1_000.0)


def propose(limits=FAST, **options):
    found = select(PLANT, TaskQuery(state=FAILED), **options)
    new = NewPlan("tasks", PLANT, "state:failed", found.items, found.skipped, found.queues, limits)
    return plans.propose(new, None, "The bank is back.", NOW)


def approve(plan):
    return plans.approve(plan.pk, plan.hash, None, "Agreed.", now=NOW)


class Killed(BaseException):
    """The process ends here."""


class MemoryBroker:
    """Stagings and queues in memory. kill_at: the number of operations after which the process dies."""

    def __init__(self):
        self.stagings, self.sent, self.waiting = {}, [], 0
        self.operations, self.kill_at, self.is_away = 0, None, False

    def open(self, plan, name):
        if self.is_away:
            raise PlantUnavailable("shop can't be reached.")
        return MemoryOutlet(self, name)

    def step(self):
        self.operations += 1
        if self.kill_at is not None and self.operations >= self.kill_at:
            self.kill_at = None
            raise Killed


class MemoryOutlet:
    settle_seconds = 0.0

    def __init__(self, broker, name):
        self.broker, self.name = broker, name

    def write_staging(self, tasks):
        self.broker.stagings[self.name] = []
        for start in range(0, len(tasks), 10):
            self.broker.step()
            self.broker.stagings[self.name] += tasks[start : start + 10]
        return len(tasks)

    def count_staged(self):
        self.broker.step()
        if self.name not in self.broker.stagings:
            raise StagingLost("shop has lost the staged messages.")
        return len(self.broker.stagings[self.name])

    def send(self, most):
        self.broker.step()
        staged = self.broker.stagings[self.name]
        part, staged[:] = staged[:most], staged[most:]
        self.broker.sent += part
        self.broker.step()
        return len(part)

    def discard(self):
        left = len(self.broker.stagings.pop(self.name, []))
        self.broker.step()
        return left

    def count_waiting(self, queues):
        return self.broker.waiting

    def close(self):
        pass


class Worker:
    """A clock whose passing time lets a worker end the sent tasks."""

    def __init__(self, broker, failing=lambda number: False):
        self.broker, self.failing, self.seconds, self.ended = broker, failing, 0.0, set()

    def now(self):
        return NOW.timestamp() + self.seconds

    def sleep(self, seconds):
        self.seconds += seconds
        new = [task for task in self.broker.sent if task.id not in self.ended]
        self.ended |= {task.id for task in new}
        store(*(self.end(task) for task in new))

    def end(self, task):
        failed = self.failing(task.args[0])
        return TaskRecord(
            id=task.id,
            state=FAILED if failed else SUCCEEDED,
            error="ConnectionError('gone')" if failed else "",
            at=self.now(),
            plant=PLANT,
            name=task.task,
            queue=task.queue,
            args=task.args_text,
            kwargs=task.kwargs_text,
            are_exact=True,
            parent=task.retry_of,
            received=self.now() - 0.01,
            ended=self.now(),
        )
