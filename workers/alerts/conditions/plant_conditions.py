"""Conditions of the plant: its queues, nodes, producers, workers, and pipeline."""

from collections.abc import Iterator
from typing import Any

from controllers.design.expected_band import ForecastBand
from controllers.framework.reason import format_count, format_percent
from queues.nodes.node_state import OFFLINE
from workers.alerts.conditions.condition import Condition, Reading
from workers.alerts.conditions.evidence import Evidence
from workers.control.tick import HOST, are_most_nodes_late
from workers.documents.pipeline import FAILED, STALLED, STARTING, UNHEARD, PipelineStatus
from workers.plants.reached import explain_fault
from workers.steering import scope

KNOWN_DAYS = 1.0


def _format_seconds(value: float | None) -> str:
    return "an unknown time" if value is None else f"{value:,.0f} s"


def _list_related_subjects(evidence: Evidence, name: str) -> dict[str, Any]:
    """Return the subjects that are related to a queue.

    They are the nodes that hold the queue's points or its remaining events, what consumes it, and the queue whose
    workers make it wait.
    """
    queue, crowd = evidence.plant.queues[name], evidence.crowd
    rows = queue.containers
    nodes = sorted(node for node, row in rows.items() if row.points or row.waiting_events)
    crowded = {"crowded_by": crowd.crowded[name]} if crowd is not None and name in crowd.crowded else {}
    return {"nodes": nodes, "kind": queue.kind, **crowded}


def _queue_wait(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, queue in evidence.plant.queues.items():
        wait = queue.wait_seconds
        said = f"Queue {name}: the oldest event has waited {_format_seconds(wait)}."
        yield Reading({"queue": name}, wait, said, _list_related_subjects(evidence, name))


def _queue_latency(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, queue in evidence.plant.queues.items():
        latency = queue.latency_p95_seconds
        # Nothing is handled while nothing arrives: there is no latency then, and none that is too long.
        if latency is None and not queue.waiting_events:
            continue
        said = f"Queue {name}: p95 latency is {_format_seconds(latency)}."
        yield Reading({"queue": name}, latency, said, _list_related_subjects(evidence, name))


def _read_unexpected_rates(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return readings of queues whose usual day is known: before that, a band is a guess."""
    for name, rates in evidence.plant.bands.queues.items():
        band = rates.get("in_per_second")
        if band is None or band.days < KNOWN_DAYS:
            continue
        if band.minute is None:
            yield Reading({"queue": name}, None, f"Queue {name}: rate of the last minute unknown.")
            continue
        outside = ForecastBand(band.low, band.high, band.days).compute_relative_distance(band.minute)
        said = (
            f"Queue {name} received {band.minute:,.1f} events/s in the last minute;"
            f" {band.low:,.1f} to {band.high:,.1f} were expected."
        )
        yield Reading({"queue": name}, outside, said)


def _dead_letters(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, queue in evidence.plant.queues.items():
        count = queue.dead_letters
        said = f"Queue {name}: {format_count(count or 0, 'dead letter')} to requeue or discard."
        yield Reading({"queue": name}, count, said, _list_related_subjects(evidence, name))


def _read_lost_nodes(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    # When most are late at once, the process that listens to them is the more likely cause.
    touches = {"cause": HOST} if are_most_nodes_late(evidence.plant) else {}
    for name, node in evidence.plant.nodes.items():
        age = node.age_seconds
        if age is None:
            age = evidence.unheard.get(name)
        yield Reading({"node": name}, age, f"Node {name} has not reported for {_format_seconds(age)}.", touches)


def _read_node_loads(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, node in evidence.plant.nodes.items():
        use = node.utilisation
        # The last report of a silent node says nothing about now.
        known = not node.stale and node.state != OFFLINE
        percent = 100 * use if use is not None and known else None
        said = (
            f"Node {name}: load unknown."
            if percent is None
            else f"Node {name}: load is {percent:.0f} % of its capacity."
        )
        yield Reading({"node": name}, percent, said)


def _node_memory(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, node in evidence.plant.nodes.items():
        used, capacity = node.memory_bytes, node.memory_capacity_bytes
        share = None if used is None or not capacity else 100 * used / capacity
        said = f"Node {name}: memory {share or 0:.0f} % used; a full node accepts no events."
        yield Reading({"node": name}, share, said)


def _producer_silent(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, age in sorted(evidence.producers.items()):
        said = f"Producer {name} has published nothing for {age:,.0f} s."
        yield Reading({"producer": name}, age, said, {"queues": evidence.published_to.get(name, ())})


def _read_missing_workers(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    if evidence.snapshot is None:
        return
    if any(queue.kind == "jobs" for _, queue in evidence.plant.queues.items()):
        slots = evidence.snapshot.totals.worker_slots
        free = f"Worker slots available for the jobs queues: {slots or 0:.0f}."
        none = f"No workers process events of the jobs queues: {scope.explain_no_slots(evidence.snapshot)}."
        yield Reading({}, slots, free if slots else none)


def _workers_saturated(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    totals = evidence.plant.totals
    busy, slots = totals.workers_busy, totals.worker_slots
    if slots and busy is not None:
        touches = {"crowded_by": evidence.crowd.queue} if evidence.crowd is not None else {}
        yield Reading({}, 100 * busy / slots, f"{busy:.0f} of {slots:.0f} worker slots are busy.", touches)


def _pool_refuses(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, host in evidence.plant.hosts.items():
        error = host.trouble
        wrong = f"Pool of {name}: its size differs from the requested size: {error}."
        said = wrong if error else f"Pool of {name}: its size is as requested."
        yield Reading({"host": name}, 1.0 if error else 0.0, said)


def _read_pipeline_downtime(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    pipeline = evidence.plant.pipeline
    if not _needs_pipeline(evidence):
        return
    age = pipeline.age_seconds
    said = f"The pipeline last reported {age or 0:,.0f} s ago."
    if age is None:  # It has been silent since its time to start was over.
        said, age = "The pipeline has never reported.", _compute_state_seconds("silent", evidence)
    if pipeline.state == FAILED:
        said, age = f"The pipeline failed: {pipeline.error}", _compute_failed_seconds(evidence)
    yield Reading({"pipeline": "main"}, age, said, _read_by_the_pipeline(evidence))


def _read_by_the_pipeline(evidence: Evidence) -> dict[str, Any]:
    """Return the nodes that hold the pipeline's queues.

    Without one of them it can't finish a batch, fails in time, and is silent while it restarts.
    """
    names = [name for name, queue in evidence.plant.queues.items() if queue.kind == "pipeline"]
    return {"nodes": sorted({node for name in names for node in _list_related_subjects(evidence, name)["nodes"]})}


def _compute_failed_seconds(evidence: Evidence) -> float:
    """Return for how long the pipeline has been down, according to its state; unknown counts from now."""
    state = evidence.plant.states.get("pipeline/main")
    since = state.since if state is not None and state.severity == "critical" else None
    if since is None:
        return _compute_state_seconds(FAILED, evidence) or 0.0
    return max(0.0, evidence.now - since)


def _compute_state_seconds(state: str, evidence: Evidence) -> float | None:
    """Return for how long the pipeline has been in this state as a part of the plant.

    Return None if it is in another state.
    """
    part = evidence.plant.parts.get("pipeline")
    return None if part is None or part.state != state else max(0.0, evidence.now - part.since)


def _pipeline_stalled(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    touches = _read_by_the_pipeline(evidence)
    for name, row in evidence.plant.pipeline.applications.items():
        stalled = row.state == STALLED
        said = f"{name} is stalled: {row.hindrance}." if stalled else f"{name} makes progress."
        yield Reading({"pipeline": name}, float(stalled), said, touches)


def _read_pipeline_lag(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    pipeline = evidence.plant.pipeline
    if _has_unknown_lag(pipeline):
        if _needs_pipeline(evidence):
            yield Reading({"pipeline": "main"}, None, "The pipeline's watermark is unknown.")
    elif (lag := pipeline.watermark_lag_seconds) is not None:
        said = f"The pipeline's watermark is {lag:,.0f} s behind."
        yield Reading({"pipeline": "main"}, lag, said, _read_by_the_pipeline(evidence))


def _has_unknown_lag(pipeline: PipelineStatus) -> bool:
    """Return whether the pipeline's lag is unknown.

    The lag is unknown if the last report is outdated, and after a start until the first batch.
    """
    if pipeline.state in UNHEARD:
        return True
    waits = any(row.waiting_events != 0 for row in pipeline.applications.values())
    return pipeline.watermark_lag_seconds is None and (pipeline.state == STARTING or waits)


def _needs_pipeline(evidence: Evidence) -> bool:
    return any(queue.kind == "pipeline" for _, queue in evidence.plant.queues.items())


def _find_throttled(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name in evidence.throttled:
        yield Reading({"queue": name}, 1.0, f"Queue {name}: admission is throttled; its producers have to wait.")


def _order_unreached(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, plant in evidence.plant.plants.items():
        wrong = [reason for reason in map(explain_fault, plant.orders, plant.orders.values()) if reason]
        more = f" ({len(wrong)} operators)" if len(wrong) > 1 else ""
        said = f"Plant {name}: {wrong[0]}{more}." if wrong else f"Plant {name}: its tasks are as requested."
        yield Reading({"plant": name}, float(len(wrong)) if plant.state == "seen" else None, said)


def _find_shedding(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return the share that is shed; unknown while a pipeline that is needed does not report."""
    if evidence.snapshot is None:
        return
    share = evidence.plant.totals.shed_share
    known = f"{format_percent(share or 0.0, 2)} of the events that patterns could use are shed."
    said = "Shed share unknown: the pipeline does not report." if share is None else known
    yield Reading({}, None if share is None else 100 * share, said)


def _observer_silent(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    age = evidence.silent_seconds
    yield Reading(
        {}, age, f"The plant was last observed {_format_seconds(age)} ago. All other figures are from that time."
    )


CONDITIONS = (
    Condition(
        "queue_wait",
        "Time for which the oldest event of a queue has waited.",
        "s",
        "queue",
        _queue_wait,
        series=("queues.{queue}.wait_seconds",),
        waits=True,
    ),
    Condition(
        "queue_latency",
        "95th percentile of the time from publishing to acknowledging an event.",
        "s",
        "queue",
        _queue_latency,
        series=("queues.{queue}.latency_p95_seconds",),
        waits=True,
    ),
    Condition(
        "rate_unexpected",
        "Distance of the last minute's rate from the middle of its expected band; 1 is the edge of the band.",
        "times",
        "queue",
        _read_unexpected_rates,
        series=("queues.{queue}.in_per_second",),
        scale=None,
    ),
    Condition(
        "dead_letters",
        "Dead letters: events that failed on every attempt.",
        "events",
        "queue",
        _dead_letters,
        series=("queues.{queue}.dead_letters",),
    ),
    Condition(
        "node_lost",
        "Time since a node's last report.",
        "s",
        "node",
        _read_lost_nodes,
        series=("nodes.{node}.age_seconds",),
        waits=True,
        elapses=True,
    ),
    Condition(
        "node_toobusy",
        "Utilization of a node.",
        "%",
        "node",
        _read_node_loads,
        series=("nodes.{node}.utilisation",),
        scale=100.0,
        waits=True,
    ),
    Condition(
        "node_memory",
        "Share of a node's memory that is used.",
        "%",
        "node",
        _node_memory,
        series=("nodes.{node}.memory_bytes",),
        scale=None,
    ),
    Condition(
        "producer_silent",
        "Time since a producer last published. After a day, the producer is no longer watched.",
        "s",
        "producer",
        _producer_silent,
        source="records",
        waits=True,
        elapses=True,
    ),
    Condition(
        "workers_missing",
        "Number of worker slots on hosts with the role jobs, if a queue needs them.",
        "slots",
        "",
        _read_missing_workers,
        direction="below",
        series=("totals.worker_slots",),
        waits=True,
    ),
    Condition(
        "workers_saturated",
        "Share of worker slots that are busy.",
        "%",
        "",
        _workers_saturated,
        series=("totals.workers_busy", "totals.worker_slots"),
        scale=None,
        waits=True,
    ),
    Condition("pool_refuses", "1 if a worker host's pool can't reach the requested size.", "", "host", _pool_refuses),
    Condition(
        "pipeline_down",
        "Time for which the pipeline has failed or not reported, if a queue needs it.",
        "s",
        "pipeline",
        _read_pipeline_downtime,
        series=("pipeline.age_seconds",),
        waits=True,
        elapses=True,
    ),
    Condition(
        "pipeline_stalled",
        "1 if an application makes no progress while its events wait.",
        "",
        "pipeline",
        _pipeline_stalled,
        series=("pipeline.waiting_events",),
        waits=True,
    ),
    Condition(
        "pipeline_lag",
        "Lag of the pipeline's watermark.",
        "s",
        "pipeline",
        _read_pipeline_lag,
        series=("pipeline.watermark_lag_seconds",),
        waits=True,
    ),
    Condition(
        "throttled",
        "1 if the remedy ladder throttles a queue's admission.",
        "",
        "queue",
        _find_throttled,
        source="records",
    ),
    Condition(
        "order_unreached",
        "Number of operators of an attached plant whose tasks differ from the requested number.",
        "operators",
        "plant",
        _order_unreached,
    ),
    Condition(
        "shedding",
        "Share of the events that patterns could use that is shed.",
        "%",
        "",
        _find_shedding,
        series=("totals.shed_share",),
        scale=100.0,
    ),
    Condition(
        "observer_silent",
        "Time since the plant was last observed.",
        "s",
        "",
        _observer_silent,
        source="records",
        waits=True,
        elapses=True,
    ),
)
