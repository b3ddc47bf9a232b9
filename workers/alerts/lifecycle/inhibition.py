"""The explanation of alerts by other alerts: an explained alert is listed below its cause and notifies nobody.

A cause explains only alerts that are not more severe than itself, so that a warning never hides a critical alert. It
does so until LINGER_SECONDS after its end: what it delayed has to catch up first. A budget that burnt burns on over
longer windows, until the shorter window of their pair is past the outage (LINGER_OF).

What ties the two may end with the outage (a node that is back is emptied): from the cause's first clear check on, it
goes on explaining what it has explained.

The snapshot knows more causes than this table, such as who holds the worker slots. Alerts whose subjects have one cause
there (`Party.root`) are one incident, also if they are more severe than the alert that leads it: that alert becomes as
severe. The one that notified somebody first leads, so that one cause notifies once. Harmful actions of a loop belong to
the problem during which the loop took them (`PROBLEM`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from queues import pausing
from workers.documents.snapshot import Snapshot
from workers.steering import scope

LINGER_SECONDS = 120.0
LINGER_OF = {"budget_burn_medium": 1_800.0, "budget_burn_slow": 21_600.0}  # as `error_budget` pairs windows
GRAVITY = {"notice": 0, "warning": 1, "critical": 2}
QUEUES = frozenset({"queue_wait", "queue_latency"})
OF_A_NODE = frozenset({"node_stale", "node_toobusy", "node_memory"})
LOOPS = frozenset(
    {"loop_stale", "loop_saturated", "loop_ineffective", "loop_harmful", "loop_oscillation", "loop_silent"}
)

# What a loop reports if its queue has all existing workers, or waits for them.
POWERLESS = frozenset({"loop_saturated", "loop_ineffective"})

OF_THE_PIPELINE = frozenset({"pipeline_down", "pipeline_stalled", "pipeline_lag"})
OF_PARTS = OF_THE_PIPELINE | {
    "observer_silent",
    "loops_stopped",
    "workers_missing",
    "workers_saturated",
    "pool_refuses",
    "producer_silent",
}

OF_A_PLANT = frozenset({"workers_missed", "queue_unserved", "sensor_silent", "consumer_lag", "order_unreached"})
SPENT_SLOWLY = frozenset({"budget_burn_slow", "budget_spent"})
OF_A_LABEL = ("plant", "objective")  # in the labels of both alerts

# Conditions without labels, and the subjects that they are about.
SUBJECTS = {"workers_missing": "plant/workers", "workers_saturated": "plant/workers", "shedding": "plant/shedding"}
# An application's alerts name it by this label; the process is called main.
PIPELINE = "pipeline"

BURNS = frozenset({"budget_burn_fast", "budget_burn_medium", "budget_burn_slow", "budget_spent"})
HARM = "loop_harmful"
ROOT = "root"  # in `touches`: the subject that causes an alert
PROBLEM_BEGAN = "problem_began_at"  # in `touches`: when the problem of an alert began (Unix time)
PROBLEM = "problem"  # in `touches`: the subject of the problem that harmful actions belong to, "" if to none
# What follows from a cause that the snapshot names. A loop that oscillates, or does harm on a calm plant, may be a
# cause itself.
JOINED = (
    QUEUES
    | OF_A_NODE
    | OF_THE_PIPELINE
    | POWERLESS
    | BURNS
    | {HARM, "node_lost", "loop_stale", "loop_silent", "workers_missing", "workers_saturated", "throttled", "shedding"}
)

# Conditions that explain even a problem that has its own cause: a failing destination is that cause.
OVERRIDING = frozenset({"host_overloaded", "observer_silent", "destination_failing"})
CROWD = "crowd"
# cause → what it explains, and how they are related: on the same node, of the same queue, of a queue whose handler
# calls the cause's destination, because the cause's queue crowds the pool, of the same attached plant or service level,
# by a cause that the alert itself names (`touches`), by the queue's consumers, or in any case.
EXPLAINS: dict[str, tuple[tuple[frozenset[str], str], ...]] = {
    "host_overloaded": ((QUEUES | OF_A_NODE | LOOPS | OF_PARTS, "any"), (frozenset({"node_lost"}), "cause host")),
    "observer_silent": ((QUEUES | OF_A_NODE | LOOPS, "any"),),
    "loops_stopped": ((LOOPS, "any"), (QUEUES | {"workers_missing"}, "jobs")),
    "node_lost": ((QUEUES | OF_A_NODE | LOOPS | OF_THE_PIPELINE, "node"), (frozenset({"workers_saturated"}), "any")),
    "workers_missing": ((QUEUES | LOOPS, "jobs"), (frozenset({"workers_saturated"}), "any")),
    "pipeline_down": ((QUEUES | LOOPS, "pipeline"), (frozenset({"pipeline_stalled", "pipeline_lag"}), "any")),
    "pipeline_stalled": ((QUEUES | LOOPS, "pipeline"), (frozenset({"pipeline_lag"}), "any")),
    "node_toobusy": ((QUEUES | LOOPS, "node"),),
    # Throttling comes before shedding, and continues with it.
    "shedding": ((frozenset({"throttled"}), "pipeline"),),
    "plant_silent": ((LOOPS | OF_A_PLANT, "plant"),),
    "workers_missed": ((LOOPS | {"queue_unserved", "order_unreached"}, "plant"),),
    "queue_unserved": ((LOOPS, "plant"),),
    "sensor_silent": ((LOOPS, "plant"),),
    "order_unreached": ((LOOPS | {"loop_held"}, "plant"),),
    "destination_failing": ((QUEUES | POWERLESS, "calls"),),
    "queue_wait": ((QUEUES | POWERLESS | {"workers_saturated"}, CROWD), (POWERLESS | {"queue_latency"}, "queue")),
    "queue_latency": ((QUEUES | {"workers_saturated"}, CROWD),),
    # The same burn of one budget: the shorter windows detect it first, and explain the longer ones.
    "budget_burn_fast": ((frozenset({"budget_burn_medium"}) | SPENT_SLOWLY, "objective"),),
    "budget_burn_medium": ((SPENT_SLOWLY, "objective"),),
}
RANK = {name: at for at, name in enumerate(EXPLAINS)}
# Causes that may explain something for longer than others.
LONG_CAUSES = ("budget_burn_fast", "budget_burn_medium")
MAX_LINGER_SECONDS = max(LINGER_OF.values())


def list_alert_subjects(condition: str, labels: Mapping[str, str]) -> list[str]:
    """Return the subjects of the snapshot that an alert is about ("kind/name"), the most specific first."""
    subjects = [SUBJECTS[condition]] if condition in SUBJECTS else []
    for kind in ("loop", "application", "pipeline", "queue", "node", "host"):
        if (name := labels.get(kind)) is not None:
            is_application = kind == PIPELINE and name != "main"
            subjects.append(f"{'application' if is_application else kind}/{name}")
    return subjects


@dataclass(frozen=True)
class Party:
    """The subject of an alert, as far as causes matter.

    - `ended_seconds`: how long it has been over, None while it is open.
    - `touches`: {"nodes": names, "kind": the queue's consumers, "crowded_by": the queue whose workers make it
      wait, "queues": the queues whose handlers call a destination}.
    - `is_stopped`: a person's stop explains it, so it is no cause.
    - `is_expected`: a planned window silences it, so it explains no alert that the window does not expect.
    - `is_clear`: whether it is over, or about to be.
    - `under`: the alert that has explained it so far.
    - `root`: the subject that causes it, as the snapshot knows or last knew; "" if unknown.
    - `is_own`: whether its subject is a cause that no other problem can have.
    - `has_notified`: whether somebody was notified of it.
    """

    id: int
    condition: str
    severity: str
    labels: Mapping[str, str]
    touches: Mapping[str, Any] = field(default_factory=dict)
    ended_seconds: float | None = None
    is_stopped: bool = False
    is_expected: bool = False
    is_clear: bool = False
    under: int | None = None
    root: str = ""
    is_own: bool = False
    has_notified: bool = False


def find_causes(parties: Iterable[Party]) -> dict[int, int]:
    """Return {explained: its cause} of the open ones. An explained cause passes what it explains on to its cause."""
    known = list(parties)
    able = [party for party in known if party.condition in RANK and not (party.is_stopped or party.is_expected)]
    direct: dict[int, int] = {}
    for party in known:
        explaining = [cause for cause in able if _explains(cause, party)] if party.ended_seconds is None else []
        if explaining:
            direct[party.id] = min(explaining, key=lambda cause: (RANK[cause.condition], cause.id)).id
    causes = {}
    for explained, cause in direct.items():
        # This ends: a cause comes before what it explains in the table, or crowds it, and is not crowded itself.
        while cause in direct:
            cause = direct[cause]
        causes[explained] = cause
    return _join_by_root(known, causes)


def _join_by_root(parties: Iterable[Party], causes: Mapping[int, int]) -> dict[int, int]:
    """Return the causes with the alerts of one root below the one that leads them."""
    by_id = {party.id: party for party in parties}
    groups: dict[str, list[Party]] = {}
    for party in by_id.values():
        if party.is_expected:
            continue
        lingers = party.ended_seconds is None or party.ended_seconds <= LINGER_SECONDS
        cause = by_id.get(causes.get(party.id, party.id), party)
        if party.root == cause.root != "" and party.condition in JOINED and lingers:
            groups.setdefault(party.root, []).append(party)
    joined = dict(causes)
    for group in groups.values():
        leader = min(group, key=_rank_leader)
        joined.pop(leader.id, None)
        others = {party.id for party in group if party.id != leader.id}
        joined |= {party.id: leader.id for party in group if party.id != leader.id and party.ended_seconds is None}
        joined |= {explained: leader.id for explained, cause in causes.items() if cause in others}
        joined.pop(leader.id, None)
    return joined


def _rank_leader(party: Party) -> tuple[bool, bool, int, int]:
    """Return the sort key of a leader: it has notified somebody, is open, and fired first."""
    return not party.has_notified, party.ended_seconds is not None, -GRAVITY[party.severity], party.id


def _explains(cause: Party, party: Party) -> bool:
    if party.is_own and cause.root != party.root and cause.condition not in OVERRIDING:
        return False
    is_long = cause.condition in LONG_CAUSES
    lingers_seconds = LINGER_OF.get(party.condition, LINGER_SECONDS) if is_long else LINGER_SECONDS
    if cause.ended_seconds is not None and cause.ended_seconds > lingers_seconds:
        return False
    if GRAVITY[cause.severity] < GRAVITY[party.severity]:
        return False
    before = RANK[cause.condition] < RANK.get(party.condition, len(RANK))
    if before and cause.is_clear and party.under == cause.id:
        return True
    return any(
        party.condition in conditions and (before or how == CROWD) and _belong(how, cause, party)
        for conditions, how in EXPLAINS[cause.condition]
    )


def _belong(how: str, cause: Party, party: Party) -> bool:
    queue = cause.labels.get("queue")
    cause_crowded_by, crowded_by = cause.touches.get("crowded_by"), party.touches.get("crowded_by")
    if how == "any":
        return True
    if how.startswith("cause "):
        return bool(party.touches.get("cause") == how.removeprefix("cause "))
    if how == CROWD:
        return bool(cause_crowded_by is None and crowded_by is not None and crowded_by == queue)
    if how == "queue":
        same = queue is not None and queue == party.labels.get("queue")
        # The record of one may be older than that of the other: avoid a circle of queues that crowd one another.
        return same and (cause_crowded_by is None or crowded_by is not None)
    if how == "calls":
        return party.labels.get("queue") in cause.touches.get("queues", ())
    if how in OF_A_LABEL:
        name = cause.labels.get(how)
        return name is not None and party.labels.get(how) == name
    if how == "node":
        node = cause.labels.get("node")
        return node is not None and (party.labels.get("node") == node or node in party.touches.get("nodes", ()))
    return bool(party.touches.get("kind") == how)


def find_explanation(stopped_by: str, labels: Mapping[str, str], touches: Mapping[str, Any], snapshot: Snapshot) -> str:
    """Return the pause or drain that explains an alert, as a sentence; "" if none does.

    What a person has stopped for a time is expected to be idle. This explains only its own effects, as the alert's
    condition says (`Condition.stopped_by`): a node that is lost while a queue is paused still alerts, and so does a
    plant whose last worker host is drained.
    """
    # The node itself, or the target of a loop that was there.
    node = labels.get("node", "")
    emptied = f"Node {node} is drained and empty." if scope.is_emptied(node, snapshot) else ""
    if stopped_by == "loop hold":
        loop = snapshot.loops.get(labels.get("loop", ""))
        why = scope.explain_hold(loop.target, snapshot) if loop else ""
        catches_up = _explain_queue(labels.get("queue", ""), pausing.CONSUMPTION, snapshot)
        return f"The loop is on hold: {why}." if why else emptied or catches_up
    if stopped_by == "node drain":
        return emptied
    if stopped_by == "host drain":
        drained = {name: row.draining for name, row in snapshot.hosts.items() if row.draining}
        name = labels.get("host") or next(iter(drained), "")
        draining = drained.get(name)
        return f"Worker host {name} is drained ({scope.format_who_and_why(draining)})." if draining else ""
    if not stopped_by:
        return ""
    part = pausing.CONSUMPTION if stopped_by == "consumption pause" else pausing.INTAKE
    queues = _list_queues(labels, touches, snapshot)
    said = [_explain_queue(queue, part, snapshot) for queue in queues]
    # Of several queues all have to be paused: one that is not should make progress.
    return said[0] if said and all(said) else ""


def _explain_queue(queue: str, part: str, snapshot: Snapshot) -> str:
    """Return the pause of a queue, or that it catches up after one or after an outage; "" if neither is so."""
    pause = scope.find_pause(queue, part, snapshot)
    if pause is not None:
        return scope.pause_in_words(queue, pause)
    row = snapshot.queues.get(queue)
    if part != pausing.CONSUMPTION or row is None or row.catching_up is None:
        return ""
    return f"Queue {queue} catches up after {row.catching_up.after}; its backlog falls."


def find_root(condition: str, labels: Mapping[str, str], touches: Mapping[str, Any], snapshot: Snapshot) -> str:
    """Return the subject that causes an alert, as the snapshot knows; "" if it knows none."""
    if condition not in JOINED:
        return ""
    if condition == HARM:
        subject = touches.get(PROBLEM, "")
        state = snapshot.states.get(subject)
        return "" if state is None else state.within or subject
    for subject in list_alert_subjects(condition, labels):
        state = snapshot.states.get(subject)
        if state is not None and state.within is not None:
            return state.within
        if state is not None and (state.affected or state.late or state.actions):
            return subject
    if condition in BURNS and "queue" not in labels:
        # A budget of all queues burns because of the only cause that makes queues late.
        late = {state.within or f"queue/{state.name}" for state in snapshot.states.values() if state.late}
        return late.pop() if len(late) == 1 else ""
    return ""


def _list_queues(labels: Mapping[str, str], touches: Mapping[str, Any], snapshot: Snapshot) -> list[str]:
    if "queue" in labels:
        return [labels["queue"]]
    if "objective" in labels:
        return []
    if "producer" in labels:
        # The snapshot forgets a silent producer before a pause is over.
        return list(touches.get("queues", ()))
    name, applications = labels.get("pipeline", ""), snapshot.pipeline.applications
    rows = [applications[name]] if name in applications else list(applications.values())
    return sorted({queue for row in rows for queue in row.queues})
