"""The plant's state in one calm sentence, worst first."""

from collections.abc import Iterator, Mapping, Sequence

from queues.nodes.node_state import BUSY, NORMAL, OFFLINE, OVERLOADED, TOOBUSY
from queues.waiting import UNHEALTHY_SECONDS
from workers.documents.nodes import NodeStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import PlantHealth, PlantTotals, Snapshot

SEVERITY = (NORMAL, BUSY, TOOBUSY, OFFLINE)
MOST_SENTENCES = 2
Finding = tuple[str, str]


def health(snapshot: Snapshot) -> PlantHealth:
    """Of a snapshot whose other parts are complete.

    The sentence has the two worst findings.
    """
    findings = sorted(_findings(snapshot), key=lambda finding: -SEVERITY.index(finding[0]))
    if not findings:
        return PlantHealth(NORMAL, _all_well(snapshot))
    text = " ".join(sentence for _, sentence in findings[:MOST_SENTENCES])
    more = len(findings) - MOST_SENTENCES
    return PlantHealth(findings[0][0], f"{text} And {more} more." if more > 0 else text)


def _findings(snapshot: Snapshot) -> Iterator[Finding]:
    if not snapshot.nodes:
        yield OFFLINE, "No node is configured yet."
        return
    yield from _nodes(snapshot.nodes)
    yield from _queues(snapshot.queues)
    yield from _workers(snapshot)
    yield from _pipeline(snapshot)
    yield from _shed(snapshot.totals)


def _nodes(nodes: Mapping[str, NodeStatus]) -> Iterator[Finding]:
    serving = [name for name, node in nodes.items() if node.state not in (OFFLINE, None)]
    for name, node in nodes.items():
        if node.state is None:
            yield OFFLINE, f"Node {name} has never reported; start its agent."
        elif node.state == OFFLINE:
            served = f"served by {_list(serving)}" if serving else "not served by any node"
            held = f"its {node.points} points are {served}"
            if not node.points:
                held = "it has no points; its waiting events are handled when it returns"
            age = node.age_seconds
            silent = f"has not reported for {age:.0f} s" if age is not None else "does not report"
            yield OFFLINE, f"Node {name} {silent}; {held}."
        elif node.state in OVERLOADED:
            word = "busy" if node.state == BUSY else "too busy"
            yield (
                node.state,
                f"Node {name} is {word}: {100 * (node.utilisation or 0.0):.0f} % of its capacity.",
            )


def _queues(queues: Mapping[str, QueueStatus]) -> Iterator[Finding]:
    for name, queue in queues.items():
        if (queue.wait_seconds or 0) > UNHEALTHY_SECONDS:
            waiting, seconds = queue.waiting_events, queue.wait_seconds
            yield TOOBUSY, f"Queue {name} falls behind: {waiting:,} events wait {seconds:.0f} s."
        if queue.trouble:
            yield BUSY, f"Queue {name}: a worker ended early ({queue.trouble.rstrip('.')})."
        if queue.dead_letters:
            yield BUSY, f"Queue {name} holds {queue.dead_letters:,} dead letters."


def _workers(snapshot: Snapshot) -> Iterator[Finding]:
    jobs = any(queue.kind == "jobs" for queue in snapshot.queues.values())
    if jobs and not snapshot.totals.worker_slots:
        yield TOOBUSY, "No worker host of role jobs reports; events of the jobs queues are not handled."


def _pipeline(snapshot: Snapshot) -> Iterator[Finding]:
    if not any(queue.kind == "pipeline" for queue in snapshot.queues.values()):
        return
    pipeline = snapshot.pipeline
    if pipeline.state is None:
        yield TOOBUSY, "The pipeline has never reported."
    elif pipeline.state == "offline":
        yield TOOBUSY, f"The pipeline has not reported for {pipeline.age_seconds:.0f} s."
    elif pipeline.state == "failed":
        yield TOOBUSY, f"The pipeline failed: {pipeline.error}."
    elif pipeline.state == "stalled":
        yield TOOBUSY, f"The pipeline is stalled: {pipeline.hindrance}."
    elif pipeline.state == "starting":
        again = f" again, after it failed: {pipeline.error}" if pipeline.error else ""
        yield BUSY, f"The pipeline is starting{again}; its queues wait for it."


def _shed(totals: PlantTotals) -> Iterator[Finding]:
    share = totals.shed_share or 0.0
    if share > 0:
        yield TOOBUSY, f"Events are shed: {100 * share:.1f} % of the events that patterns could use."


def _all_well(snapshot: Snapshot) -> str:
    count = len(snapshot.nodes)
    nodes = "The only node is" if count == 1 else f"All {count} nodes"
    return f"{nodes} normal; every queue keeps up; nothing shed."


def _list(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
