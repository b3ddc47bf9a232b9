"""Conditions of the plant: its queues, nodes, producers, workers, and pipeline."""

from collections.abc import Iterator
from typing import Any

from controllers.design.expected_band import ForecastBand
from controllers.framework.reason import format_count, format_percent
from controllers.retries.circuit import CLOSED
from queues.nodes.node_state import OFFLINE
from workers.alerts.conditions.condition import Reading, ShippedRule, register_condition
from workers.alerts.conditions.evidence import Evidence
from workers.control.tick import HOST, are_most_nodes_late
from workers.documents import parts
from workers.documents.pipeline import FAILED, STALLED, STARTING, UNHEARD
from workers.steering import scope

KNOWN_DAYS = 1.0
SAFE = "No acknowledged events are lost."


def _format_seconds(value: float | None) -> str:
    return "an unknown time" if value is None else f"{value:,.0f} s"


def _list_related_subjects(evidence: Evidence, name: str) -> dict[str, Any]:
    """Return the subjects that are related to a queue.

    They are the nodes that hold the queue's points or its remaining events, what consumes it, and the queue whose
    workers make it wait.
    """
    queue, crowd = evidence.plant.queues[name], evidence.plant.crowd
    nodes = sorted(node for node, row in queue.containers.items() if row.points or row.waiting_events)
    crowded = {"crowded_by": crowd.crowded[name]} if crowd is not None and name in crowd.crowded else {}
    return {"nodes": nodes, "kind": queue.kind, **crowded}


@register_condition(
    "Time for which the oldest event of a queue has waited.",
    unit="s",
    label="queue",
    series=("queues.{queue}.wait_seconds",),
    waits=True,
    stopped_by="consumption pause",
    rule=ShippedRule("queue-behind", "Queue {queue} falls behind", 30, 15, for_seconds=60),
    first_step="Check whether workers run and their services respond. Then raise the loop's limit.",
)
def queue_wait(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, queue in evidence.plant.queues.items():
        said = f"Queue {name}: the oldest event has waited {_format_seconds(queue.wait_seconds)}."
        yield Reading({"queue": name}, queue.wait_seconds, said, _list_related_subjects(evidence, name))


@register_condition(
    "Share of the recent calls of a handler's destination that failed; 0 while the calls are not limited.",
    unit="%",
    label="destination",
    rule=ShippedRule("destination-failing", "Calls to {destination} fail", 50, 10, for_seconds=30),
    impact="Retries wait for the retry budget. If most calls fail, only a few test calls are made.",
    first_step="Check whether the destination is overloaded. Don't requeue dead letters before it has recovered.",
)
def destination_failing(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, row in evidence.plant.destinations.items():
        percent = 0.0 if row.circuit == CLOSED else 100 * row.failing_share
        said = f"{name}: {percent:.0f} % of the recent calls fail; the circuit is {row.circuit}."
        yield Reading({"destination": name}, percent, said, {"queues": row.queues})


@register_condition(
    "95th percentile of the time from publishing to acknowledging an event.",
    unit="s",
    label="queue",
    series=("queues.{queue}.latency_p95_seconds",),
    waits=True,
    stopped_by="consumption pause",
    rule=ShippedRule("queue-latency", "Queue {queue} is slow", 15, 10, for_seconds=120),
    first_step="Find the slow node, and check how long the handler takes per event.",
)
def queue_latency(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, queue in evidence.plant.queues.items():
        latency = queue.latency_p95_seconds
        # Nothing is handled while nothing arrives: there is no latency then, and none that is too long.
        if latency is not None or queue.waiting_events:
            said = f"Queue {name}: p95 latency is {_format_seconds(latency)}."
            yield Reading({"queue": name}, latency, said, _list_related_subjects(evidence, name))


@register_condition(
    "Distance of the last minute's rate from the middle of its expected band; 1 is the edge of the band.",
    unit="times",
    label="queue",
    series=("queues.{queue}.in_per_second",),
    scale=None,
    has_preview=False,  # no series contains the expected bands
    stopped_by="intake pause",
    # Outside the band by half of its width, for ten minutes: nobody is called for it.
    rule=ShippedRule(
        "rate-unexpected", "Queue {queue} has an unusual rate", 2, 1.2, for_seconds=600, severity="notice"
    ),
    impact="Loops adapt to the rate, but limits and plans assume the usual rate.",
    first_step="Under Compare time ranges, find the producer or key that changed. Ask its owner.",
)
def rate_unexpected(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
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


@register_condition(
    "Dead letters: events that failed on every attempt.",
    unit="events",
    label="queue",
    series=("queues.{queue}.dead_letters",),
    rule=ShippedRule("dead-letters", "Queue {queue} has dead letters", 1, 1),
    first_step="Open a dead letter. Its error shows whether the event or the handler is at fault.",
)
def dead_letters(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, queue in evidence.plant.queues.items():
        count = queue.dead_letters
        said = f"Queue {name}: {format_count(count or 0, 'dead letter')} to requeue or discard."
        yield Reading({"queue": name}, count, said, _list_related_subjects(evidence, name))


@register_condition(
    "Time since a node's last report.",
    unit="s",
    label="node",
    series=("nodes.{node}.age_seconds",),
    waits=True,
    elapses=True,
    stopped_by="node drain",
    rule=ShippedRule("node-lost", "Node {node} is lost", 10, 3, keep_seconds=10, severity="critical"),
    first_step="Restart the node's agent or server. Kill it if it is suspended. Check the node's host.",
)
def node_lost(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    # When most are late at once, the process that listens to them is the more likely cause.
    touches = {"cause": HOST} if are_most_nodes_late(evidence.plant) else {}
    for name, node in evidence.plant.nodes.items():
        age = evidence.unheard.get(name) if node.age_seconds is None else node.age_seconds
        yield Reading({"node": name}, age, f"Node {name} has not reported for {_format_seconds(age)}.", touches)


@register_condition(
    "Utilization of a node.",
    unit="%",
    label="node",
    series=("nodes.{node}.utilisation",),
    scale=100.0,
    waits=True,
    rule=ShippedRule("node-too-busy", "Node {node} is too busy", 90, 80, for_seconds=60, severity="critical"),
    first_step="Find the queue that overloads the node. Move points away, or drain the node.",
)
def node_toobusy(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, node in evidence.plant.nodes.items():
        # The last report of a silent node says nothing about now.
        if node.utilisation is None or node.stale or node.state == OFFLINE:
            yield Reading({"node": name}, None, f"Node {name}: load unknown.")
        else:
            percent = 100 * node.utilisation
            yield Reading({"node": name}, percent, f"Node {name}: load is {percent:.0f} % of its capacity.")


@register_condition(
    "Share of a node's memory that is used.",
    unit="%",
    label="node",
    series=("nodes.{node}.memory_bytes",),
    scale=None,
    rule=ShippedRule("node-memory", "Node {node} is running out of memory", 85, 75, for_seconds=30),
    first_step="Check which events wait on the node. Move points away before the memory is full.",
)
def node_memory(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, node in evidence.plant.nodes.items():
        used, capacity = node.memory_bytes, node.memory_capacity_bytes
        share = None if used is None or not capacity else 100 * used / capacity
        said = f"Node {name}: memory {share or 0:.0f} % used. A full node accepts no events."
        yield Reading({"node": name}, share, said)


@register_condition(
    "Blocks and dead letters of a node that were damaged or dropped in the last day, and lost blocks.",
    unit="blocks",
    label="node",
    has_preview=False,  # no series says when a block was found
    rule=ShippedRule("block-damaged", "Node {node} has damaged or missing blocks", 1, 1, severity="critical"),
    impact="Damaged blocks are dead letters, and missing blocks are lost. Their events are not processed.",
    first_step="Check the memory and the disk of the node's host. Drain the node until you know the cause.",
)
def block_damaged(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, node in evidence.plant.nodes.items():
        damaged = node.count_damaged_blocks(evidence.now)
        missing = node.count_missing_blocks(evidence.now)
        counts = f"{format_count(damaged, 'damaged block')}, {format_count(missing, 'missing block')}"
        last = f" {node.damage}" if damaged else ""
        yield Reading({"node": name}, damaged + missing, f"Node {name}: {counts}.{last}")


@register_condition(
    "Time since a producer last published. After a day, the producer is no longer watched.",
    unit="s",
    label="producer",
    source="records",
    waits=True,
    elapses=True,
    stopped_by="intake pause",
    # Others come and go; a person says which must not fall silent.
    rule=ShippedRule(
        "producer-silent",
        "Producer {producer} is not publishing",
        60,
        30,
        matchers=({"label": "producer", "is": "=", "value": "host"},),
    ),
    impact="The producer has no events, or its events do not reach the plant.",
    first_step="Ask the producer's owner. Check whether the producer reaches the console or the control server.",
)
def producer_silent(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, age in sorted(evidence.producers.items()):
        said = f"Producer {name} has published nothing for {age:,.0f} s."
        yield Reading({"producer": name}, age, said, {"queues": evidence.published_to.get(name, ())})


@register_condition(
    "Number of worker slots on hosts with the role jobs, if a queue needs them.",
    unit="slots",
    direction="below",
    series=("totals.worker_slots",),
    waits=True,
    needs=(parts.CONSUMERS["jobs"],),
    rule=ShippedRule("workers-missing", "No workers for the jobs queues", 0, 0, for_seconds=15, severity="critical"),
    impact=f"Events of the jobs queues wait and are not processed. {SAFE}",
    first_step="Restart the worker host of role jobs, or return a drained host to service.",
)
def workers_missing(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    if evidence.snapshot is not None and any(queue.kind == "jobs" for queue in evidence.plant.queues.values()):
        slots = evidence.snapshot.totals.worker_slots
        free = f"Worker slots available for the jobs queues: {slots or 0:.0f}."
        none = f"No workers process events of the jobs queues: {scope.explain_no_slots(evidence.snapshot)}."
        yield Reading({}, slots, free if slots else none)


@register_condition(
    "Share of worker slots that are busy.",
    unit="%",
    series=("totals.workers_busy", "totals.worker_slots"),
    scale=None,
    waits=True,
    needs=(parts.CONSUMERS["jobs"],),
    stopped_by="host drain",
    rule=ShippedRule("workers-saturated", "All worker slots are busy", 95, 85, for_seconds=600, severity="notice"),
    impact="Started workers wait for a slot; low-priority queues wait longest.",
    first_step="Check whether queues fall behind. If not, no action is needed.",
)
def workers_saturated(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    busy, slots = evidence.plant.totals.workers_busy, evidence.plant.totals.worker_slots
    if slots and busy is not None:
        touches = {"crowded_by": evidence.plant.crowd.queue} if evidence.plant.crowd is not None else {}
        yield Reading({}, 100 * busy / slots, f"{busy:.0f} of {slots:.0f} worker slots are busy.", touches)


@register_condition(
    "1 if a worker host's pool can't reach the requested size.",
    label="host",
    stopped_by="host drain",
    rule=ShippedRule("pool-refuses", "The pool of {host} can't grow", 1, 1, for_seconds=15, severity="notice"),
    impact="The pool keeps its current processes, and the loop uses their number as its limit.",
    first_step="Check the host's memory and process limit. Lower the loop's maximum.",
)
def pool_refuses(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, host in evidence.plant.hosts.items():
        wrong = f"Pool of {name}: its size differs from the requested size: {host.trouble}."
        said = wrong if host.trouble else f"Pool of {name}: its size is as requested."
        yield Reading({"host": name}, 1.0 if host.trouble else 0.0, said)


def _needs_pipeline(evidence: Evidence) -> bool:
    return any(queue.kind == "pipeline" for queue in evidence.plant.queues.values())


def _list_pipeline_nodes(evidence: Evidence) -> dict[str, Any]:
    """Return the nodes that hold the pipeline's queues.

    Without one of them it can't finish a batch, fails in time, and is silent while it restarts.
    """
    names = [name for name, queue in evidence.plant.queues.items() if queue.kind == "pipeline"]
    return {"nodes": sorted({node for name in names for node in _list_related_subjects(evidence, name)["nodes"]})}


@register_condition(
    "Time for which the pipeline has failed or not reported, if a queue needs it.",
    unit="s",
    label="pipeline",
    series=("pipeline.age_seconds",),
    waits=True,
    elapses=True,
    rule=ShippedRule("pipeline-down", "The pipeline is down", 15, 10, keep_seconds=10, severity="critical"),
    impact=f"Events of the pipeline's queues wait; no complex events are detected. {SAFE}",
    first_step="Read the pipeline's log. The pipeline resumes from its checkpoint when it starts.",
)
def pipeline_down(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    pipeline = evidence.plant.pipeline
    if not _needs_pipeline(evidence):
        return
    part = evidence.plant.parts.get("pipeline")
    age = pipeline.age_seconds
    said = f"The pipeline last reported {age or 0:,.0f} s ago."
    if age is None:  # It has been silent since its time to start was over.
        said = "The pipeline has never reported."
        age = max(0.0, evidence.now - part.since) if part is not None and part.state == "silent" else None
    if pipeline.state == FAILED:
        # It has been down since its state says so; unknown counts from now.
        state = evidence.plant.states.get("pipeline/main")
        since = state.since if state is not None and state.severity == "critical" else None
        if since is None and part is not None and part.state == FAILED:
            since = part.since
        said, age = f"The pipeline failed: {pipeline.error}", 0.0 if since is None else max(0.0, evidence.now - since)
    yield Reading({"pipeline": "main"}, age, said, _list_pipeline_nodes(evidence))


@register_condition(
    "1 if an application makes no progress while its events wait.",
    label="pipeline",
    series=("pipeline.waiting_events",),
    has_preview=False,  # no series contains the progress of an application's batches
    waits=True,
    stopped_by="consumption pause",
    rule=ShippedRule("pipeline-stalled", "The pipeline is stalled", 1, 1, for_seconds=15, severity="critical"),
    impact=f"Events of the application's queues wait; no complex events are detected. {SAFE}",
    first_step="If the stall reason names a process, restart this process. Weir restarts any other stuck part.",
)
def pipeline_stalled(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    touches = _list_pipeline_nodes(evidence)
    for name, row in evidence.plant.pipeline.applications.items():
        stalled = row.state == STALLED
        said = f"{name} is stalled: {row.hindrance}." if stalled else f"{name} makes progress."
        yield Reading({"pipeline": name}, float(stalled), said, touches)


@register_condition(
    "Lag of the pipeline's watermark.",
    unit="s",
    label="pipeline",
    series=("pipeline.watermark_lag_seconds",),
    waits=True,
    stopped_by="consumption pause",
    rule=ShippedRule("pipeline-lag", "The pipeline lags behind", 60, 30, for_seconds=60),
    impact="Complex events are detected late, by the lag of the watermark.",
    first_step="Check whether batches take longer than their interval.",
)
def pipeline_lag(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return the lag; unknown if the last report is outdated, and after a start until the first batch."""
    pipeline = evidence.plant.pipeline
    lag = pipeline.watermark_lag_seconds
    waits = any(row.waiting_events != 0 for row in pipeline.applications.values())
    if pipeline.state in UNHEARD or (lag is None and (pipeline.state == STARTING or waits)):
        if _needs_pipeline(evidence):
            yield Reading({"pipeline": "main"}, None, "The pipeline's watermark is unknown.")
    elif lag is not None:
        said = f"The pipeline's watermark is {lag:,.0f} s behind."
        yield Reading({"pipeline": "main"}, lag, said, _list_pipeline_nodes(evidence))


@register_condition(
    "1 if the remedy ladder throttles a queue's admission.",
    label="queue",
    source="records",
    stopped_by="intake pause",
    rule=ShippedRule("throttled", "Admission of {queue} is throttled", 1, 1),
    impact="Producers have to wait. They keep their events, so no events are lost.",
    first_step="On the queue's page, find the cheaper remedy that is on hold or at its limit. "
    "End the hold, or raise the limit.",
)
def throttled(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name in evidence.throttled:
        yield Reading({"queue": name}, 1.0, f"Queue {name}: admission is throttled. Its producers have to wait.")


@register_condition(
    "Share of the events that patterns could use that is shed.",
    unit="%",
    series=("totals.shed_share",),
    scale=100.0,
    rule=ShippedRule("shedding", "Events are shed", 0.01, 0.01, severity="critical"),
    impact="Shed events are lost. They are counted by type and pattern.",
    first_step="On the shedding loop's page, find the bottleneck, and give that operator more capacity.",
)
def shedding(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return the share that is shed; unknown while a pipeline that is needed does not report."""
    if evidence.snapshot is None:
        return
    share = evidence.plant.totals.shed_share
    if share is None:
        yield Reading({}, None, "Shed share unknown: the pipeline does not report.")
    else:
        yield Reading({}, 100 * share, f"{format_percent(share, 2)} of the events that patterns could use are shed.")


@register_condition(
    "Time since the plant was last observed.",
    unit="s",
    source="records",
    waits=True,
    elapses=True,
    rule=ShippedRule("observer-silent", "The plant is not observed", 10, 5, keep_seconds=5, severity="critical"),
    impact="Pages show an outdated state of the plant. Loops take no action on old measurements.",
    first_step="Restart the observer process; if it is suspended, kill it. Check whether the control server responds.",
)
def observer_silent(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    age = evidence.silent_seconds
    said = f"The plant was last observed {_format_seconds(age)} ago. All other figures are from that time."
    yield Reading({}, age, said)
