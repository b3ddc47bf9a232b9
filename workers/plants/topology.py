"""The local plant as a topology (`controllers.parallelism.measured_topology`), from one snapshot of it.

| operator | meaning | its tasks |
|---|---|---|
| `producers/{queue}` | a source: the producers; the channel after it is the wait in containers | one |
| `replicas/{application}` | the intra-event stage of an application | its replicas, as declared |
| `{application}/{operator}` | an operator of the application | as in its controls: **set here** |
| `{queue}` | the workers of a jobs queue | workers at once; each is their mean |

A queue that a pipeline emits to has a source of its own only if another producer publishes to it, too.
"""

import math
from collections.abc import Iterator, Mapping

from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from workers.documents.pipeline import ApplicationStatus, OperatorStatus
from workers.documents.plants import PlantHolder
from workers.documents.queues import PIPELINE_PRODUCER, QueueStatus
from workers.documents.snapshot import PlantTotals, Snapshot
from workers.pipeline.status.status import WINDOW_SECONDS

MAX_TASKS = 64  # limit of `workers.pipeline.declaration.controls`
ONE_PRODUCER = "producers are not part of the plant"
DECLARED = "the replicas are declared with the application"
SENT_FOR = "the loop worker_rate starts its workers"


def build_topology(snapshot: Snapshot) -> MeasuredTopology:
    """Return the whole plant in a snapshot. Raise `BadInput` if applications feed each other."""
    applications, queues = snapshot.pipeline.applications, snapshot.queues
    operators = {operator.name: operator for operator in _iterate_operators(snapshot)}
    links = tuple(_iterate_links(operators, applications, queues))
    steered = snapshot.steered_by or PlantHolder()
    return MeasuredTopology(
        snapshot.plant, snapshot.at or 0.0, WINDOW_SECONDS, operators, links, steered.holder, steered.until
    )


def build_application_topology(topology: MeasuredTopology, application: str) -> MeasuredTopology:
    """Return the application's own stages and operators; none if it is not running."""
    own = (f"{application}/", f"replicas/{application}")
    return topology.extract_part(name for name in topology.operators if name == own[1] or name.startswith(own[0]))


def place_of(operator: str) -> tuple[str, str]:
    """Return (application, operator) of an operator's name."""
    application, _, name = operator.partition("/")
    return application, name


def _iterate_operators(snapshot: Snapshot) -> Iterator[MeasuredOperator]:
    applications = snapshot.pipeline.applications
    emitted = {queue for row in applications.values() for queues in row.sinks.values() for queue in queues}
    published = {  # by a producer that is not a pipeline
        queue
        for name, producer in snapshot.producers.items()
        if not name.startswith(PIPELINE_PRODUCER)
        for queue in producer.queues
    }
    for name, queue in snapshot.queues.items():
        if name not in emitted or name in published:
            yield _build_source(name, queue)
        if queue.kind == "jobs":
            yield _build_worker_operator(name, queue, snapshot.totals)
    for application, row in applications.items():
        work = tuple(replica.work for replica in row.replicas.values())
        yield MeasuredOperator(
            f"replicas/{application}", "operator", len(work), len(work), len(work), DECLARED, tasks=work
        )
        levels = len({operator.level for operator in row.operators.values()})
        for name, operator in row.operators.items():
            overhead = row.batch_overhead_seconds
            yield MeasuredOperator(
                f"{application}/{name}",
                "operator",
                operator.parallelism,
                1,
                MAX_TASKS,
                tasks=tuple(operator.work),
                # The levels run one after the other in a common batch, and share what it takes besides.
                batch_overhead_seconds=None if overhead is None else overhead / levels,
            )


def _build_source(name: str, queue: QueueStatus) -> MeasuredOperator:
    dead = [row.dead_per_second for row in queue.containers.values()]
    known = [value for value in dead if value is not None]
    failed = math.fsum(known) if known else None
    out = queue.out_per_second
    acked = None if out is None or failed is None else max(0.0, out - failed)
    outputs = {"outputs": _compute_count_per_task(queue.in_per_second)}
    return MeasuredOperator(
        f"producers/{name}",
        "source",
        1,
        1,
        1,
        ONE_PRODUCER,
        _compute_count_per_task(failed),
        _compute_count_per_task(acked),
        (outputs,),
    )


def _build_worker_operator(name: str, queue: QueueStatus, totals: PlantTotals) -> MeasuredOperator:
    at_once = queue.workers_at_once
    tasks = max(1, math.ceil(at_once or 0))
    most = max(tasks, totals.worker_slots or 0)
    measured = {
        "latency_seconds": queue.service_seconds,
        "service_seconds": queue.service_seconds,
        "utilisation": None if at_once is None else at_once / tasks,
        "arrival_interval_seconds": tasks / queue.in_per_second if queue.in_per_second else None,
        "inputs": _compute_count_per_task(queue.in_per_second, tasks),
        "executions": _compute_count_per_task(queue.out_per_second, tasks),
        "outputs": None,  # the output of a handler is not counted here
    }
    return MeasuredOperator(name, "operator", tasks, 1, most, SENT_FOR, tasks=(measured,) * tasks)


def _iterate_links(
    operators: Mapping[str, MeasuredOperator],
    applications: Mapping[str, ApplicationStatus],
    queues: Mapping[str, QueueStatus],
) -> Iterator[Link]:
    for name, queue in queues.items():
        for target in _list_readers(name, queue, applications):
            if f"producers/{name}" in operators:
                yield Link(f"producers/{name}", target, queue.wait_seconds)
    for application, row in applications.items():
        held_seconds = _compute_held_seconds(row, queues, operators[f"replicas/{application}"])
        # Most of it passes until event time is settled, and only the rest depends on the tasks.
        wait_seconds, settling_seconds = row.combiner.wait_seconds, None
        if held_seconds is not None and wait_seconds is not None:
            settling_seconds = max(0.0, held_seconds - wait_seconds)
        for name, operator in row.operators.items():
            if operator.reads_source:
                yield Link(f"replicas/{application}", f"{application}/{name}", held_seconds, settling_seconds)
            for sink in _emits_to(row, operator):
                for target in _list_readers(sink, queues[sink], applications) if sink in queues else ():
                    yield Link(f"{application}/{name}", target, queues[sink].wait_seconds)
        pairs = dict.fromkeys((edge.source, edge.target) for edge in row.edges)
        for source, target in pairs:
            # Levels follow each other within a batch: nothing waits in between.
            yield Link(f"{application}/{source}", f"{application}/{target}", 0.0)


def _list_readers(queue: str, row: QueueStatus, applications: Mapping[str, ApplicationStatus]) -> list[str]:
    if row.kind == "jobs":
        return [queue]
    return [f"replicas/{name}" for name, application in applications.items() if queue in application.queues]


def _emits_to(application: ApplicationStatus, operator: OperatorStatus) -> list[str]:
    types = {application.patterns[name].emits for name in operator.patterns}
    return sorted({queue for event_type in types for queue in application.sinks.get(event_type, ())})


def _compute_held_seconds(
    application: ApplicationStatus, queues: Mapping[str, QueueStatus], rules: MeasuredOperator
) -> float | None:
    """Return how long an event is held in the result queue until event time has passed it.

    This is the watermark's lag, less the waiting and the work before.
    """
    lag = application.watermark_lag_seconds
    waits = [queues[name].wait_seconds for name in application.queues if name in queues]
    worked, known = rules.measure("latency_seconds"), [wait for wait in waits if wait is not None]
    if lag is None or worked is None or len(known) < len(waits):
        return None
    return max(0.0, lag - worked - max(known, default=0.0))


def _compute_count_per_task(per_second: float | None, tasks: int = 1) -> float | None:
    return None if per_second is None else round(per_second * WINDOW_SECONDS / tasks, 3)
