"""The sections of a Celery app's page besides operators.

They show its workers, queues, kinds of tasks, last tasks, and errors, and what can't be observed and why.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from controllers.framework.reason import format_count
from workers.documents.plants import PlantSection
from workers.plants.foreign.celery_app.broker import QueueLength
from workers.plants.foreign.celery_app.events import PoolEvents, SeenTask, TaskEvents
from workers.plants.foreign.celery_app.measures import PoolMeasures

LAST_TASKS, LAST_FAILURES, MAX_KINDS, MAX_NAMED = 50, 10, 200, 10
Value = str | float | None


def build_sections(
    pools: Sequence[PoolMeasures],
    lengths: Mapping[str, QueueLength],
    unacknowledged: int | None,
    events: TaskEvents,
    limits: Mapping[str, Mapping[str, str]],
    notes: Sequence[str],
) -> list[PlantSection]:
    """Return all sections, in the order of the page."""
    tasks = events.get_latest()
    return [
        PlantSection(
            title="Not observed",
            columns=["Reason"],
            rows=[[note] for note in notes],
            empty="Queues, pools, and tasks are fully observed.",
        ),
        _build_workers_section(pools, events),
        _build_queues_section(lengths, pools, unacknowledged),
        _build_task_types_section(tasks, pools, limits),
        PlantSection(
            title="Last tasks",
            about="arguments; detected secrets are removed",
            columns=["ID", "Task", "Arguments", "State", "Wait, s", "Run, s", "Retries", "Worker"],
            rows=[_build_task_row(task) for task in tasks[:LAST_TASKS]],
            empty="No task events received yet.",
        ),
        PlantSection(
            title="Last errors",
            columns=["ID", "Task", "Error", "Traceback"],
            rows=[
                [task.id, task.name or None, task.error, task.traceback]
                for task in events.list_errors()[:LAST_FAILURES]
            ],
            empty="No failed tasks.",
        ),
    ]


def describe_missing(
    workers: Sequence[str],
    without_events: Sequence[str],
    error: str | None,
    asks: bool,
    left_queues: int = 0,
    gone: Sequence[str] = (),
) -> list[str]:
    """Return a message for each thing that can't be observed or set. gone: messages about silent workers."""
    notes = list(gone)
    if not workers:
        notes.append(
            "No worker responds to remote control: no worker is running, or remote control is disabled"
            " (worker_enable_remote_control). Queues are observed, but nothing can be controlled."
        )
    if left_queues:
        notes.append(f"Queues that are not observed: {left_queues:,}. List the queues to observe in the option queues.")
    if error:
        notes.append(f"Worker events: {error}.")
    if without_events:
        why = (
            "do not arrive"
            if asks
            else "arrive only from workers started with -E, or if Weir may enable them (option events)"
        )
        notes.append(
            f"Task events of {_format_some(without_events)} {why}: waits, arguments, and errors are unknown,"
            " and run times are estimated with Little's law."
        )
    return notes


def _build_workers_section(pools: Sequence[PoolMeasures], events: TaskEvents) -> PlantSection:
    return PlantSection(
        title="Workers",
        about="counts since Weir first saw each worker; times of the last 2 minutes",
        columns=[
            "Worker", "Pool", "Processes", "Busy", "Waiting", "Oldest, s", "Arrivals/s", "Started/s",
            "Wait, s", "Run, s", "Failed", "Retried", "Revoked", "Prefetch", "Queues",
        ],
        rows=[_build_worker_row(pool, events.pools.get(pool.pool.worker)) for pool in pools],
        empty="No workers are responding.",
    )  # fmt: skip


def _build_worker_row(measures: PoolMeasures, heard: PoolEvents | None) -> list[Value]:
    pool = measures.pool
    counts: list[Value] = [heard.failed, heard.retried, heard.revoked] if heard else [None, None, None]
    return [
        pool.worker,
        pool.implementation.rpartition(".")[2],
        pool.processes,
        measures.busy,
        round(measures.waiting),
        _round_seconds(measures.oldest_seconds),
        _round_rate(measures.arrivals_per_second),
        _round_rate(measures.begun_per_second),
        _round_seconds(measures.wait_seconds),
        _round_seconds(measures.service_seconds),
        *counts,
        pool.prefetch,
        _format_some(pool.queues),
    ]


def _build_queues_section(
    lengths: Mapping[str, QueueLength], pools: Sequence[PoolMeasures], unacknowledged: int | None
) -> PlantSection:
    about = "" if unacknowledged is None else f"unacknowledged in all queues: {unacknowledged}"
    return PlantSection(
        title="Queues",
        about=about,
        columns=["Queue", "Ready", "By priority", "Unacknowledged", "Consumers", "Oldest, s", "Workers"],
        rows=[_queue(name, length, pools) for name, length in lengths.items()],
        empty="No queues found.",
    )


def _queue(name: str, length: QueueLength, pools: Sequence[PoolMeasures]) -> list[Value]:
    consumers = [pool for pool in pools if name in pool.pool.queues]
    oldest = max((consumer.oldest_seconds for consumer in consumers), default=None)
    return [
        name,
        length.waiting,
        ", ".join(f"{priority}: {count}" for priority, count in sorted(length.priorities.items())),
        length.unacknowledged,
        length.consumers,
        _round_seconds(oldest) if length.waiting else 0.0,
        _format_some([consumer.pool.worker for consumer in consumers]) or "none responding",
    ]


def _build_task_types_section(
    tasks: Sequence[SeenTask], pools: Sequence[PoolMeasures], limits: Mapping[str, Mapping[str, str]]
) -> PlantSection:
    begun: Counter[str] = Counter()
    for pool in pools:
        begun.update(pool.pool.total)
    of_kind: dict[str, list[SeenTask]] = {}
    for task in tasks:
        of_kind.setdefault(task.name, []).append(task)
    limited = {name: limit for limits_of_worker in limits.values() for name, limit in limits_of_worker.items() if limit}
    names = dict.fromkeys([*begun, *limited, *(seen_task.name for seen_task in tasks if seen_task.name)])
    return PlantSection(
        title="Task types",
        about=f"results and run times, last {format_count(len(tasks), 'task')}",
        columns=["Task", "Started", "Failed", "Retried", "Run, s", "Rate limit"],
        rows=[
            [name, begun.get(name), *_count_outcomes(of_kind.get(name, ())), limited.get(name)]
            for name in sorted(names)[:MAX_KINDS]
        ],
        empty="No tasks started yet.",
    )


def _count_outcomes(tasks: Sequence[SeenTask]) -> list[Value]:
    runs = [task.runtime_seconds for task in tasks if task.runtime_seconds is not None]
    return [
        sum(task.state == "failed" for task in tasks),
        sum(task.state == "retried" for task in tasks),
        _round_seconds(fmean(runs)) if runs else None,
    ]


def _build_task_row(task: SeenTask) -> list[Value]:
    known = task.started is not None and task.received is not None
    wait = max(0.0, (task.started or 0.0) - (task.received or 0.0)) if known else None
    return [
        task.id,
        task.name or None,
        task.arguments,
        task.state,
        _round_seconds(wait),
        _round_seconds(task.runtime_seconds),
        task.retries,
        task.worker,
    ]


def _format_some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _round_seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _round_rate(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
