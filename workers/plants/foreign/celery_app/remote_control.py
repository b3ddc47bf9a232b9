"""The workers of a Celery app by its remote control: their state, and the orders that they get.

The `max-concurrency` of a pool stays at its start value, so the list of its processes is what counts. A pool that is to
shrink is asked to end idle processes only: no task is taken away from a busy process.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kombu.exceptions import ContentDisallowed, DecodeError

from common.errors import describe_connection_error
from workers.plants.foreign.celery_app import transport
from workers.plants.foreign.celery_app.broker import FAILURES, MAX_QUEUES
from workers.plants.foreign.redaction import redact
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

ANSWER_SECONDS = 1.0
# maximum per app and per worker; the rest of an answer is ignored
MAX_WORKERS, BELIEVED_PROCESSES = 200, 10_000
PREFORK = "celery.concurrency.prefork"
# A gevent pool does not report its size after a resize before Celery 5.7, so it is unknown how many to add.
RESIZABLE = (PREFORK, "celery.concurrency.eventlet")
# Workers report their uptime in whole seconds, and their clock may differ from the local one.
UPTIME_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class WorkerPool:
    """The pool of one worker.

    fixed: why its processes can't be set; None: they can. total: tasks that it has started, by name, since the worker
    was started; prefetch: messages that it takes ahead.
    """

    worker: str
    pid: int | None
    processes: int
    implementation: str
    fixed: str | None
    queues: tuple[str, ...]
    total: Mapping[str, int]
    uptime_seconds: float | None
    prefetch: int | None

    @property
    def begun(self) -> int:
        """Return the tasks started since the worker was started."""
        return sum(self.total.values())

    def is_continuation_of(self, before: "WorkerPool") -> bool:
        """Return whether this can be the same life of the worker: no counter that only grows is lower."""
        uptime, earlier = self.uptime_seconds, before.uptime_seconds
        has_aged = uptime is None or earlier is None or uptime >= earlier
        return self.pid == before.pid and has_aged and self.begun >= before.begun

    def was_alive_at(self, at: float, now: float) -> bool:
        """Return whether the worker was running at that time, by its reported uptime. Times: seconds since 1970."""
        return self.uptime_seconds is None or self.uptime_seconds >= now - at - UPTIME_SECONDS

    def matches_recorded_life(self, noted: Sequence[Any] | None, now: float) -> bool:
        """Return whether the recorded life is this one: its pid, and an instant of it, in seconds since 1970.

        The pid is not enough, because it is the same in all containers.
        """
        return noted is not None and noted[0] == self.pid and self.was_alive_at(noted[1], now)


class RemoteControl:
    """The remote control of one app; `broadcast` is that of `celery.app.control.Control`.

    Every method raises `PlantUnavailable` if the broker does not answer in time. A worker that does not answer is left
    out of the answers.
    """

    def __init__(self, name: str, broadcast: Callable[..., Any], closed: Callable[[], None] = lambda: None) -> None:
        self._name, self._broadcast, self.close = name, broadcast, closed
        self.twice: list[str] = []  # names under which two workers answered when pools were requested
        self.late: list[str] = []  # workers whose answer was incomplete when pools were requested

    def list_pools(self) -> dict[str, WorkerPool]:
        """Return the pool of each worker that answers. Raise `PlantUnavailable` if none does."""
        if pools := self.request_pools():
            return pools
        raise PlantUnavailable(f"{self._name}: no worker responds to remote control.")

    def request_pools(self, expected: int | None = None, workers: Sequence[str] | None = None) -> dict[str, WorkerPool]:
        """Return the pool of each of these workers, or of all, waiting for at most `expected` answers.

        A worker that reports its state but not its queues is late. Treated as a worker without queues it would be
        neither paused nor measured.
        """
        answered = self._ask_workers("stats", workers=workers, expected=expected)
        stats = dict(answered)
        self.twice = [  # two answers under one name are from two workers: containers have the same pid
            worker
            for worker, answer in answered
            for last in [_check_mapping(stats[worker])]
            if any(_check_mapping(answer).get(key) != last.get(key) for key in ("pid", "total"))
        ]
        queues = self.ask("active_queues", workers=list(stats)) if stats else {}
        answers = {
            worker: answer
            for worker, answer in sorted(stats.items())
            if isinstance(answer, Mapping) and "error" not in answer
        }
        self.late = [worker for worker in answers if worker not in queues]
        answers = {worker: answer for worker, answer in answers.items() if worker in queues}
        return {worker: build_pool(worker, answer, queues[worker]) for worker, answer in answers.items()}

    def ask(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        workers: Sequence[str] | None = None,
        expected: int | None = None,
    ) -> dict[str, Any]:
        """Return the answer to a command of each of these workers, or of all."""
        return dict(self._ask_workers(command, arguments, workers, expected))

    def _ask_workers(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        workers: Sequence[str] | None = None,
        expected: int | None = None,
    ) -> list[tuple[str, Any]]:
        """Return (worker, answer) pairs; two workers may have one name."""
        limit = len(workers) if workers is not None else expected
        try:
            answers = self._broadcast(
                command,
                arguments=dict(arguments or {}),
                destination=None if workers is None else list(workers),
                reply=True,
                timeout=ANSWER_SECONDS,
                limit=limit or None,
            )
        except transport.NoWorkerBound:
            answers = []
        except transport.SeparatorDiffers as error:
            raise InvalidPlantResponse(f"{self._name}: the request failed: {error}.") from None
        except (ContentDisallowed, DecodeError) as error:
            raise InvalidPlantResponse(f"{self._name} returned an invalid response: {error}.") from None
        except FAILURES as error:
            raise PlantUnavailable(f"{self._name} can't be reached ({describe_connection_error(error)}).") from None
        items_of_answers = (
            item for raw_answer in answers or () if isinstance(raw_answer, Mapping) for item in raw_answer.items()
        )
        known = [(transport.parse_name(worker), answer) for worker, answer in islice(items_of_answers, MAX_WORKERS)]
        return [(worker, answer) for worker, answer in known if worker]

    def list_reserved_tasks(self, workers: Sequence[str]) -> dict[str, list[str]]:
        """Return the names of the tasks that each answering worker has taken and not started."""
        return self._list_tasks("reserved", workers)

    def count_running_tasks(self, workers: Sequence[str]) -> dict[str, int]:
        """Return the number of running tasks of each worker that answers."""
        return {worker: len(names) for worker, names in self._list_tasks("active", workers).items()}

    def _list_tasks(self, what: str, workers: Sequence[str]) -> dict[str, list[str]]:
        answers = self.ask(what, workers=workers) if workers else {}
        return {
            worker: [transport.parse_name(_check_mapping(task).get("name")) for task in tasks]
            for worker, tasks in answers.items()
            if isinstance(tasks, list)
        }

    def list_rate_limits(self, workers: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the rate limit of each task that a worker knows, "" for none, by worker."""
        answers = self.ask("registered", {"taskinfoitems": ["rate_limit"]}, workers) if workers else {}
        return {worker: dict(map(_limit, limits)) for worker, limits in answers.items() if isinstance(limits, list)}

    def order(self, command: str, worker: str, **arguments: object) -> None:
        """Send one worker an order.

        Raise `PlantUnavailable` if it does not answer, and `InvalidPlantResponse`, with its message, if it refuses.
        """
        for error in self.order_all(command, [worker], **arguments).values():
            raise error

    def order_all(
        self, command: str, workers: Sequence[str], **arguments: object
    ) -> dict[str, PlantUnavailable | InvalidPlantResponse]:
        """Send workers an order, all at once. Return those known not to have executed it, and why."""
        answers = self.ask(command, arguments, workers) if workers else {}
        errors: dict[str, PlantUnavailable | InvalidPlantResponse] = {}
        for worker in workers:
            answer = answers.get(worker)
            if answer is None:
                said = f"{self._name}: {worker} did not respond within {ANSWER_SECONDS:g} s."
                errors[worker] = PlantUnavailable(said)
            elif isinstance(answer, Mapping) and (error := answer.get("error")):
                said = f"{self._name}: {worker} rejected the request: {redact(transport.parse_text(error), 300)}"
                errors[worker] = InvalidPlantResponse(said)
        return errors


def build_pool(worker: str, stats: Mapping[str, Any], queues: object) -> WorkerPool:
    """Return the pool from a worker's report; what it doesn't report is unknown."""
    pool, total = _check_mapping(stats.get("pool")), _check_mapping(stats.get("total"))
    implementation = transport.parse_name(pool.get("implementation"))
    return WorkerPool(
        worker=worker,
        pid=transport.count_of(stats.get("pid")),
        processes=_count_processes(pool),
        implementation=implementation.partition(":")[0],
        fixed=_explain_fixed_size(stats, implementation),
        queues=tuple(
            name
            for queue in (queues if isinstance(queues, list) else ())[:MAX_QUEUES]
            if isinstance(queue, Mapping) and (name := transport.parse_name(queue.get("name")))
        ),
        total={
            transport.parse_name(name): number for name, value in total.items() if (number := transport.count_of(value))
        },
        uptime_seconds=transport.parse_seconds(stats.get("uptime")),
        prefetch=transport.count_of(stats.get("prefetch_count")),
    )


def _count_processes(pool: Mapping[str, Any]) -> int:
    processes = pool.get("processes")
    if isinstance(processes, list):
        return min(len(processes), BELIEVED_PROCESSES)
    most = transport.count_of(pool.get("max-concurrency"))
    return 1 if most is None else min(most, BELIEVED_PROCESSES)


def _explain_fixed_size(stats: Mapping[str, Any], implementation: str) -> str | None:
    """Return why the pool can't be resized; None: it can."""
    if stats.get("autoscaler"):
        return "it runs with Celery's --autoscale, which rejects other changes; start it without that option"
    if implementation.startswith(RESIZABLE):
        return None
    kind = implementation.partition(":")[0].rpartition(".")[2] or "unknown"
    return f"a pool of kind {kind} can't be resized while it runs; use prefork"


def _limit(text: object) -> tuple[str, str]:
    """Return the limit in "name" or "name [rate_limit=10/m]"; no limit is also reported as 0."""
    name, _, rest = transport.parse_text(text)[: 2 * transport.MAX_NAME].partition(" [")
    limit = rest.rstrip("]").removeprefix("rate_limit=")
    return name, "" if limit.partition("/")[0].strip("0.") == "" else limit


def _check_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
