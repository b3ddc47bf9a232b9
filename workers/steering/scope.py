"""The scope of overrides and stops, who may act on it, and which loops hold meanwhile.

A scope is one loop, or every loop of a law, a queue, a node, or of a combination of these. It can also be a node, a
queue, or a worker host itself.

A loop of a whole attached plant (target {"plant"}) sets the tasks of each of its operators, a loop of one operator
(target {"plant", "operator"}) its own. Of two loops of different kinds, if one is of an operator, only one may act:
enabling the second is refused, whichever it is. (Loops of a whole plant yield to each other automatically, as those of
an application do: `workers.control.parts.operators`.)

A loop whose target is stopped would measure nothing useful: workers that start and find a paused queue, a pool that is
empty because it drains. It holds until the target resumes, and says so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q, QuerySet

from controllers.shedding.ladder import LAW as LADDER
from controllers.shedding.ladder import LEVELS, allows
from queues import pausing
from queues.models import Node
from workers.documents import hosts
from workers.documents.loops import LoopStatus, OverrideStatus
from workers.documents.queues import CircuitHoldStatus, PauseStatus
from workers.documents.snapshot import Snapshot
from workers.models import Loop, Override
from workers.windows.scope import covers_target, format_scope

THRESHOLDS = ("busy_threshold", "toobusy_threshold")
NODE_USES = ("drained", "cordoned")  # names of overrides that take a node out of use, and its fields
IN_USE = "in use"
CIRCUIT = "circuit"  # the name of an override on a queue: its destination's circuit is held open or closed
DRAINING = "work"  # the name of an override on a worker host: it takes no new work
Target = Mapping[str, Any]
LADDER_ADVISES = (
    "must be advise or hold: the remedy ladder can't change an attached plant. To add tasks, set a loop of"
    " the plant to auto. To pause a queue, use the plant's page."
)
SHED = LEVELS.index("shed") + 1


@dataclass(frozen=True)
class Scope:
    """A scope: `loop` alone, or one or more of law, queue, and node: the loops that match all of them.

    A `node` alone may also be the node itself: then the override's name is one of its thresholds, drained, or cordoned.
    A `queue` alone may be the queue itself: the name is the part of it that is paused, or `circuit`. A `host` is a
    worker host. `window`: the scope of a planned window instead.
    """

    loop: Loop | None = None
    law: str = ""
    queue: str = ""
    node: Node | None = None
    host: str = ""
    window: tuple[str, ...] = ()

    @classmethod
    def build(cls, override: Override) -> "Scope":
        if override.occurrence is not None:
            return cls(window=tuple(override.occurrence.window.scope))
        return cls(override.loop, override.law, override.queue, override.node, override.host)

    @property
    def is_sound(self) -> bool:
        """Return whether it names something, and one loop or many, not both."""
        wide = bool(self.law or self.queue or self.node or self.host)
        return wide != (self.loop is not None)

    def is_itself(self, name: str) -> bool:
        """Return whether an override of this name is on a node, queue, or worker host, not on loops."""
        if self.loop is not None or self.law:
            return False
        if self.host:
            return name == DRAINING and not (self.queue or self.node)
        if self.queue:
            return (name in pausing.PARTS or name == CIRCUIT) and self.node is None
        return name in THRESHOLDS or name in NODE_USES

    @property
    def is_wide(self) -> bool:
        """Return whether it may cover many loops."""
        return self.loop is None

    def get_field_values(self) -> dict[str, Any]:
        """Return the columns of an override."""
        return {"loop": self.loop, "law": self.law, "queue": self.queue, "node": self.node, "host": self.host}

    def covers(self, loop: Loop) -> bool:
        """Return whether the loop is within it."""
        if self.loop is not None:
            return self.loop.pk == loop.pk
        if self.window:
            return covers_target(self.window, loop.target)
        node = self.node.name if self.node else ""
        wanted = (
            (self.law, loop.law),
            (self.queue, loop.target.get("queue")),
            (node, loop.target.get("node")),
            (self.host, loop.target.get("host")),
        )
        return all(not name or name == of_loop for name, of_loop in wanted)

    def meets(self, other: "Scope", loops: Iterable[Loop]) -> bool:
        """Return whether some loop is within both."""
        return any(self.covers(loop) and other.covers(loop) for loop in loops)

    def __str__(self) -> str:
        if self.loop is not None:
            return self.loop.name
        if self.window:
            return format_scope(self.window)
        node = self.node.name if self.node else ""
        named = (("law", self.law), ("queue", self.queue), ("node", node), ("worker host", self.host))
        return ", ".join(f"{kind} {name}" for kind, name in named if name)


def list_active_loops() -> QuerySet[Loop]:
    """Return the loops whose target and law exist; retired ones keep their ledger and their name.

    A law may be of another version, while one replaces the other, or a user's own law, and gone.
    """
    from controllers import catalog  # The observer imports this module and needs no law but the ladder.

    return Loop.objects.filter(law__in=catalog.LAWS).exclude(target__has_key="retired_at")


def filter_unexpired(now: datetime) -> Q:
    """Return the condition that an override has not reached its expiry."""
    return Q(expires_at__gt=now) | Q(expires_at__isnull=True)


def is_threshold(override: Override) -> bool:
    """Return whether it is on a node itself, not on loops."""
    return override.node_id is not None and override.name in THRESHOLDS


def is_node_use(override: Override) -> bool:
    """Return whether it drains or cordons a node."""
    return override.node_id is not None and override.name in NODE_USES


def is_pause(override: Override) -> bool:
    """Return whether it pauses a queue."""
    return bool(override.queue) and override.name in pausing.PARTS


def is_circuit_hold(override: Override) -> bool:
    """Return whether it holds the circuit of a queue's destination."""
    return bool(override.queue) and override.name == CIRCUIT


def is_drain(override: Override) -> bool:
    """Return whether it drains a worker host."""
    return bool(override.host)


def is_itself(override: Override) -> bool:
    """Return whether it is on a node, a queue, or a worker host itself: it is no value of any loop."""
    is_of_queue = is_pause(override) or is_circuit_hold(override)
    return is_threshold(override) or is_node_use(override) or is_of_queue or is_drain(override)


def format_time(at: datetime, since: datetime) -> str:
    """Return a time in UTC, with its day if that is not the day of `since`: 14:30:00 UTC."""
    utc = at.astimezone(UTC)
    day = "" if utc.date() == since.astimezone(UTC).date() else f"{utc:%Y-%m-%d} "
    return f"{day}{utc:%H:%M:%S} UTC"


def explain_never(loop: Loop) -> str | None:
    """Return why a loop may never act; None if it may."""
    return LADDER_ADVISES if is_advisory_only(loop.law, loop.target) else None


def is_advisory_only(law: str, target: Target) -> bool:
    """Return whether a law's loop on this target never acts."""
    return law == LADDER.name and "plant" in target


def explain_fixed(law: str, name: str) -> str | None:
    """Return why nobody can set this parameter of a law; None if people can."""
    from controllers.worker_rate.law import LAW as WORKER_RATE  # as above

    if (law, name) != (WORKER_RATE.name, "workers"):
        return None
    return (
        "workers can't be set: the value follows the loop's target (short-lived for a container, permanent for a pool)."
    )


def needs_explicit_enabling(loop: Loop) -> bool:
    """Return whether a loop acts only if a person enables this very loop.

    This applies to pools of an attached plant, and to its ladder. Enabling all loops of a law does not include a pool
    that appears later, or its plant.
    """
    return "plant" in loop.target and ("operator" in loop.target or loop.law == LADDER.name)


def meet(one: Target, other: Target) -> bool:
    """Return whether loops with these targets set tasks of one operator, one being of that operator alone."""
    operators = {target.get("operator") for target in (one, other)}
    is_one_plant = bool(one.get("plant")) and one.get("plant") == other.get("plant")
    return is_one_plant and operators != {None} and (None in operators or len(operators) == 1)


def find_competing_loop(loop: Loop, acting: Iterable[Loop]) -> Loop | None:
    """Return the first of the acting loops (or those about to act) that sets what this loop sets."""
    others = (other for other in acting if other.pk != loop.pk and other.law != loop.law)
    return next((other for other in others if meet(loop.target, other.target)), None)


def explain_refusal(loop: Loop, competitor: Loop) -> str:
    """Explain in a sentence, with what to do."""
    what = loop.target.get("operator") or competitor.target.get("operator")
    return (
        f"can't be set for {loop.name}: {competitor.name} already sets the tasks of {what};"
        f" set {competitor.name} to advise first."
    )


def list_pauses(queue: str, overrides: Iterable[OverrideStatus]) -> list[PauseStatus]:
    """Return the pauses of a queue, intake first."""
    rows = [row for row in overrides if row.queue == queue and row.name in pausing.PARTS]
    return [_build_pause_status(row) for row in sorted(rows, key=lambda row: pausing.PARTS.index(row.name))]


def list_circuit_holds(overrides: Iterable[OverrideStatus]) -> dict[str, CircuitHoldStatus]:
    """Return the holds of circuits by queue."""
    return {
        row.queue: CircuitHoldStatus(
            circuit=str(row.value),
            override=row.id,
            since=row.created_at,
            until=row.expires_at,
            by=row.owner,
            reason=row.reason,
        )
        for row in overrides
        if row.queue and row.name == CIRCUIT
    }


def drain_of(host: str, overrides: Iterable[OverrideStatus]) -> PauseStatus | None:
    """Return the drain of a worker host; None if it takes work."""
    rows = [row for row in overrides if row.host == host and row.name == DRAINING]
    return _build_pause_status(rows[-1]) if rows else None


def _build_pause_status(row: OverrideStatus) -> PauseStatus:
    return PauseStatus(
        part=row.name, override=row.id, since=row.created_at, until=row.expires_at, by=row.owner, reason=row.reason
    )


def explain_no_slots(snapshot: Snapshot) -> str:
    """Return why the jobs queues have no slot, while there is none, as the end of a sentence."""
    reports = any(row.role == "jobs" for row in snapshot.hosts.values())
    return explain_all_drained(snapshot) or f"no worker host of role jobs {'has a slot' if reports else 'is reporting'}"


def explain_all_drained(snapshot: Snapshot) -> str:
    """Return which worker hosts of role jobs are drained, if all are, as the end of a sentence; else "".

    After its drain has ended, a host stays drained for a second until it follows.
    """
    hosts = {name: row for name, row in snapshot.hosts.items() if row.role == "jobs"}
    if not all(row.draining or row.drained for row in hosts.values()):
        return ""
    by = {name: f" ({format_who_and_why(row.draining)})" if row.draining else "" for name, row in hosts.items()}
    return ", ".join(f"host {name} is drained{words}" for name, words in by.items())


def list_missing_capabilities(queue: str, snapshot: Snapshot) -> list[str]:
    """Return the capabilities that a queue's workers require and no host has."""
    row = snapshot.queues.get(queue)
    return hosts.list_missing_capabilities(snapshot.hosts.values(), "jobs", row.requirements) if row else []


def format_who_and_why(stop: PauseStatus) -> str:
    """Return who stopped it, and the reason, for use in parentheses within a sentence."""
    return f"{stop.by}: {stop.reason.rstrip('.')}"


def is_emptied(node: str, snapshot: Snapshot) -> bool:
    """Return whether a node is drained, and had no events of any queue at its last report."""
    row = snapshot.nodes.get(node)
    left = [queue.containers[node] for queue in snapshot.queues.values() if node in queue.containers]
    holds = any(container.points or container.waiting_events or container.dead_letters for container in left)
    return row is not None and row.drained and not holds


def find_pause(queue: str, part: str, snapshot: Snapshot) -> PauseStatus | None:
    """Return the pause of one part of a queue."""
    row = snapshot.queues.get(queue)
    return next((pause for pause in row.pauses if pause.part == part), None) if row else None


def explain_hold(target: Mapping[str, str], snapshot: Snapshot) -> str:
    """Return why a loop with this target has to hold, as the end of a sentence; "" if it need not.

    A loop of a whole queue decides on its arrivals, and a loop of one container on its consumption. An application that
    may read another of its queues has work.
    """
    host = snapshot.hosts.get(target.get("host", ""))
    if host and host.draining:
        return f"worker host {target['host']} is drained {_format_end(host.draining)}"
    queue = target.get("queue", "")
    for part in pausing.PARTS:
        pause = find_pause(queue, part, snapshot)
        if pause is not None and (part == pausing.CONSUMPTION or "node" not in target):
            return f"{part} of {queue} is paused {_format_end(pause)}"
    row = snapshot.pipeline.applications.get(target.get("application", ""))
    if row and row.outbox_full:
        return f"its complex events wait for {', '.join(sorted(row.outbox))}"
    queues = row.queues if row else []
    pauses = [find_pause(name, pausing.CONSUMPTION, snapshot) for name in queues]
    if not queues or None in pauses:
        return ""
    return f"consumption of {', '.join(queues)} is paused {_format_end(pauses[0])}"


def _format_end(pause: PauseStatus | None) -> str:
    if pause is None or pause.until is None:
        return "without expiry"
    until = datetime.fromtimestamp(pause.until, UTC)
    return f"until {format_time(until, datetime.fromtimestamp(pause.since or pause.until, UTC))}"


def pause_in_words(queue: str, pause: PauseStatus) -> str:
    return f"{pause.part.capitalize()} of {queue} is paused {_format_end(pause)} ({format_who_and_why(pause)})."


def find_active_level(queue: str, snapshot: Snapshot) -> int | None:
    """Return the highest level that the ladder, or a person in its place, has enabled and that is in force.

    Return None while the level is not known, since the ladder's last tick had no valid measurement. Without an acting
    ladder, no level is enabled.
    """
    loop = find_ladder(queue, snapshot)
    if loop is None or not loop.was_decided_in(*Loop.ACTING):
        return 0
    rung = loop.terms.get(str(LADDER.actuator))
    return None if rung is None else int(rung)


def compute_closed_share(queue: str, snapshot: Snapshot) -> float:
    """Return the share of the time that producers are to wait. It is all of the time if a person throttles manually."""
    loop = find_ladder(queue, snapshot)
    if loop is None or not allows(find_active_level(queue, snapshot) or 0, "throttle"):
        return 0.0
    return 1.0 if loop.mode == Loop.Mode.MANUAL else float(loop.terms.get("closed_share") or 0.0)


def list_shedding_queues(queues: list[str], snapshot: Snapshot) -> list[str] | None:
    """Return the queues whose ladder has enabled shedding; None if a level is unknown and no other has enabled it."""
    levels = {queue: find_active_level(queue, snapshot) for queue in queues}
    shedding = [queue for queue, level in levels.items() if level is not None and level >= SHED]
    return None if not shedding and None in levels.values() else shedding


def find_ladder(queue: str, snapshot: Snapshot) -> LoopStatus | None:
    """Return the remedy ladder of a queue."""
    return snapshot.loops.get(f"{LADDER.name}/{queue}")
