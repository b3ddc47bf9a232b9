"""Which alert explains which: an explained alert is listed below its cause and notifies nobody.

A cause explains only alerts that are not more severe than itself, so that a warning never hides a critical alert. It
does so until LINGER_SECONDS after its end: what it delayed has to catch up first. A budget that burnt burns on over
longer windows, until the shorter window of their pair is past the outage (LINGER_OF).

What ties the two may end with the outage (a node that is back is emptied): from the cause's first clear check on, it
goes on explaining what it has explained.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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

CROWD = "crowd"
# cause → what it explains, and how they are related: on the same node, of the same queue, because the cause's
# queue crowds the pool, of the same attached plant or service level, by a cause that the alert itself names
# (`touches`), by the queue's consumers, or in any case.
EXPLAINS: dict[str, tuple[tuple[frozenset[str], str], ...]] = {
    "host_overloaded": ((QUEUES | OF_A_NODE | LOOPS | OF_PARTS, "any"), (frozenset({"node_lost"}), "cause host")),
    "observer_silent": ((QUEUES | OF_A_NODE | LOOPS, "any"),),
    "loops_stopped": ((LOOPS, "any"), (QUEUES | {"workers_missing"}, "jobs")),
    "node_lost": ((QUEUES | OF_A_NODE | LOOPS | OF_THE_PIPELINE, "node"), (frozenset({"workers_saturated"}), "any")),
    "workers_missing": ((QUEUES | LOOPS, "jobs"), (frozenset({"workers_saturated"}), "any")),
    "pipeline_down": ((QUEUES | LOOPS, "pipeline"), (frozenset({"pipeline_stalled", "pipeline_lag"}), "any")),
    "pipeline_stalled": ((QUEUES | LOOPS, "pipeline"), (frozenset({"pipeline_lag"}), "any")),
    "node_toobusy": ((QUEUES | LOOPS, "node"),),
    "plant_silent": ((LOOPS | OF_A_PLANT, "plant"),),
    "workers_missed": ((LOOPS | {"queue_unserved", "order_unreached"}, "plant"),),
    "queue_unserved": ((LOOPS, "plant"),),
    "sensor_silent": ((LOOPS, "plant"),),
    "order_unreached": ((LOOPS | {"loop_held"}, "plant"),),
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


@dataclass(frozen=True)
class Party:
    """What an alert is about, as far as causes matter.

    - `ended_seconds`: how long it has been over, None while it is open.
    - `touches`: {"nodes": names, "kind": the queue's consumers, "crowded_by": the queue whose workers make it
      wait}.
    - `is_stopped`: a person's stop explains it, so it is no cause.
    - `is_clear`: whether it is over, or about to be.
    - `under`: the alert that has explained it so far.
    """

    id: int
    condition: str
    severity: str
    labels: Mapping[str, str]
    touches: Mapping[str, Any] = field(default_factory=dict)
    ended_seconds: float | None = None
    is_stopped: bool = False
    is_clear: bool = False
    under: int | None = None


def find_causes(parties: Iterable[Party]) -> dict[int, int]:
    """Return {explained: its cause} of the open ones.

    An explained cause passes what it explains on to its own cause.
    """
    known = list(parties)
    able = [party for party in known if party.condition in RANK and not party.is_stopped]
    cause_by_id = {party.id: _cause(party, able) for party in known if party.ended_seconds is None}
    direct = {each: cause for each, cause in cause_by_id.items() if cause is not None}
    return {each: _find_root_cause(cause, direct) for each, cause in direct.items()}


def _find_root_cause(cause: int, direct: Mapping[int, int]) -> int:
    # This ends: a cause comes before what it explains in the table, or crowds it, and is not crowded itself.
    while cause in direct:
        cause = direct[cause]
    return cause


def _cause(party: Party, able: list[Party]) -> int | None:
    explaining = [able_party for able_party in able if _explains(able_party, party)]
    return min(explaining, key=lambda each: (RANK[each.condition], each.id)).id if explaining else None


def _explains(cause: Party, party: Party) -> bool:
    if cause.condition not in RANK:
        return False
    if cause.ended_seconds is not None and cause.ended_seconds > _linger_seconds(cause, party):
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


def _linger_seconds(cause: Party, party: Party) -> float:
    """Return for how long after its end the cause explains this one."""
    return LINGER_OF.get(party.condition, LINGER_SECONDS) if cause.condition in LONG_CAUSES else LINGER_SECONDS


def _belong(how: str, cause: Party, party: Party) -> bool:
    if how == "any":
        return True
    if how.startswith("cause "):
        return party.touches.get("cause") == how.removeprefix("cause ")
    if how == CROWD:
        return (
            _explain_crowding(cause) is None
            and _explain_crowding(party) is not None
            and _explain_crowding(party) == _queue(cause)
        )
    if how == "queue":
        same = _queue(cause) is not None and _queue(cause) == _queue(party)
        # The record of one may be older than that of the other: avoid a circle of queues that crowd one
        # another.
        return same and (_explain_crowding(cause) is None or _explain_crowding(party) is not None)
    if how in OF_A_LABEL:
        name = cause.labels.get(how)
        return name is not None and party.labels.get(how) == name
    if how == "node":
        node = cause.labels.get("node")
        return node is not None and (party.labels.get("node") == node or node in party.touches.get("nodes", ()))
    return party.touches.get("kind") == how


def _explain_crowding(party: Party) -> str | None:
    starvation: str | None = party.touches.get("crowded_by")
    return starvation


def _queue(party: Party) -> str | None:
    return party.labels.get("queue")
