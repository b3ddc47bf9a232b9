"""The workers of a Celery app by its remote control: what they are, and what they are asked to do.

`max-concurrency` of a pool stays what it was started with; what counts is its list of processes. A pool that
is to have fewer is asked to end idle processes only: no task is taken from one that works.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kombu.exceptions import ContentDisallowed, DecodeError

from workers.plants.foreign.celery_app.broker import FAILURES
from workers.plants.plant import PlantConfused, PlantSilent

ANSWER_SECONDS = 1.0
PREFORK = "celery.concurrency.prefork"
GROWS = (PREFORK, "celery.concurrency.gevent", "celery.concurrency.eventlet")


@dataclass(frozen=True, kw_only=True)
class WorkerPool:
    """Of one worker. fixed: why its processes can't be set; None: they can. total: tasks that it has begun,
    by name, since it was started; prefetch: messages that it takes ahead.
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
        """Tasks since the worker was started."""
        return sum(self.total.values())


class RemoteControl:
    """Of one app; `broadcast` as `celery.app.control.Control` has it. Every method raises PlantSilent where
    the broker does not answer in time; a worker that does not is left out of the answers.
    """

    def __init__(
        self, name: str, broadcast: Callable[..., Any], closed: Callable[[], None] = lambda: None
    ) -> None:
        self._name, self._broadcast, self.close = name, broadcast, closed

    def pools(
        self, expected: int | None = None, workers: Sequence[str] | None = None
    ) -> dict[str, WorkerPool]:
        """Worker → its pool, of these or of all that answer; waits no longer than until so many have."""
        stats = self.ask("stats", workers=workers, expected=expected)
        queues = self.ask("active_queues", workers=list(stats)) if stats else {}
        return {
            worker: pool_of(worker, answer, queues.get(worker))
            for worker, answer in sorted(stats.items())
            if isinstance(answer, Mapping) and "error" not in answer
        }

    def ask(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        workers: Sequence[str] | None = None,
        expected: int | None = None,
    ) -> dict[str, Any]:
        """Worker → its answer to a command, of these workers or of all."""
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
        except (ContentDisallowed, DecodeError) as error:
            raise PlantConfused(f"{self._name} answers what can't be read: {error}.") from None
        except FAILURES as error:
            raise PlantSilent(f"{self._name} can't be reached ({error}).") from None
        return {str(worker): answer for each in answers or () for worker, answer in each.items()}

    def pool(self, worker: str) -> WorkerPool:
        """Of one worker. Raises PlantSilent when it does not answer."""
        answer = self.ask("stats", workers=[worker]).get(worker)
        if not isinstance(answer, Mapping):
            raise PlantSilent(f"{self._name}: {worker} did not answer within {ANSWER_SECONDS:g} s.")
        return pool_of(worker, answer, None)

    def taken(self, worker: str) -> int:
        """How many tasks a worker has taken and not begun; 0 of one that does not answer."""
        return self._count("reserved", worker) or 0

    def busy(self, worker: str) -> int:
        """At how many tasks it works. Raises PlantSilent when it does not answer."""
        count = self._count("active", worker)
        if count is None:
            raise PlantSilent(f"{self._name}: {worker} did not answer within {ANSWER_SECONDS:g} s.")
        return count

    def _count(self, what: str, worker: str) -> int | None:
        found = self.ask(what, workers=[worker]).get(worker)
        return len(found) if isinstance(found, list) else None

    def rate_limits(self, workers: Sequence[str]) -> dict[str, dict[str, str]]:
        """Worker → name of a task → its rate limit, "" for none: of all that the worker knows."""
        answers = self.ask("registered", {"taskinfoitems": ["rate_limit"]}, workers) if workers else {}
        return {
            worker: dict(map(_limit, found)) for worker, found in answers.items() if isinstance(found, list)
        }

    def order(self, command: str, worker: str, **arguments: Any) -> None:
        """Have one worker do something. Raises PlantSilent when it does not answer, and PlantConfused with
        what it says when it refuses.
        """
        answer = self.ask(command, arguments, [worker]).get(worker)
        if answer is None:
            raise PlantSilent(f"{self._name}: {worker} did not answer within {ANSWER_SECONDS:g} s.")
        if isinstance(answer, Mapping) and (error := answer.get("error")):
            raise PlantConfused(f"{self._name}: {worker} refuses: {str(error)[:300]}")


def pool_of(worker: str, stats: Mapping[str, Any], queues: Any) -> WorkerPool:
    """Of what a worker says of itself; what it doesn't say is unknown."""
    pool, total = _mapping(stats.get("pool")), _mapping(stats.get("total"))
    implementation = str(pool.get("implementation", ""))
    uptime, prefetch = stats.get("uptime"), stats.get("prefetch_count")
    return WorkerPool(
        worker=worker,
        pid=stats.get("pid") if isinstance(stats.get("pid"), int) else None,
        processes=_processes(pool),
        implementation=implementation.partition(":")[0],
        fixed=_fixed(stats, implementation),
        queues=tuple(
            str(each["name"]) for each in queues or () if isinstance(each, Mapping) and each.get("name")
        ),
        total={str(name): int(count) for name, count in total.items() if isinstance(count, int)},
        uptime_seconds=float(uptime) if isinstance(uptime, (int, float)) else None,
        prefetch=prefetch if isinstance(prefetch, int) else None,
    )


def _processes(pool: Mapping[str, Any]) -> int:
    processes = pool.get("processes")
    if isinstance(processes, list):
        return len(processes)
    most = pool.get("max-concurrency")
    return most if isinstance(most, int) and most >= 0 else 1


def _fixed(stats: Mapping[str, Any], implementation: str) -> str | None:
    if stats.get("autoscaler"):
        return "it runs with Celery's own --autoscale, and refuses other hands; start it without"
    if not implementation.startswith(GROWS):
        kind = implementation.partition(":")[0].rpartition(".")[2] or "unknown"
        return f"a pool of kind {kind} can't be resized while it runs; prefork can"
    return None


def _limit(text: Any) -> tuple[str, str]:
    """Of "name" or "name [rate_limit=10/m]"."""
    name, _, rest = str(text).partition(" [")
    return name, rest.rstrip("]").removeprefix("rate_limit=")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
