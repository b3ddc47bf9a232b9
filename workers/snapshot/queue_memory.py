"""Figures that need the past of a queue: usual values, bursts, handler changes, and a falling backlog.

usual      the average of a figure over about USUAL_SECONDS; values above UNUSUAL times of it don't count, unless
they last for RELEARN_SECONDS
burst      more than UNUSUAL times the usual events arrive
catch-up   a queue was late while it was paused, or because of a cause elsewhere, which has ended. It lasts while
the backlog reaches a new minimum every FALLING_SECONDS and does not grow. After a backlog that grew, there is
none for FAILED_SECONDS.
"""

import math
from collections.abc import Mapping

from common.stored_document import replace_fields
from queues.pausing import CONSUMPTION
from queues.topology import QueueSpec
from workers.documents.parts import CONSUMERS, find_settling, format_node_part
from workers.documents.queues import CatchUp, QueueStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import SubjectState
from workers.snapshot.scene import compute_slowdown
from workers.steering.scope import find_pause

USUAL_SECONDS = 120.0
SMOOTH_SECONDS = 8.0
FIRST_SECONDS = 20.0  # of samples before a usual figure is known
RELEARN_SECONDS = 1_800.0
UNUSUAL = 2.0
MIN_BURST_PER_SECOND = 5.0
FALLING_SECONDS = 30.0
GROWTH, GROWTH_SECONDS = 1.25, 8.0  # a backlog this many times its minimum, this long after it, does not fall
FAILED_SECONDS = 120.0
OUTAGES = ("plant", "pipeline", "node")  # kinds of subjects whose outages make queues late
NO_OUTAGES = ("plant/shedding", "plant/nodes", "plant/retries")
OUTAGE_SECONDS = 60.0  # after its end, what it has delayed is handled late
DIGITS = 2


class SmoothedRate:
    """A rate averaged over about SMOOTH_SECONDS: producers send in batches, and one batch is no burst."""

    def __init__(self) -> None:
        self._value: float | None = None
        self._at = 0.0

    def add(self, value: float | None, at_seconds: float) -> float | None:
        """Add a sample; return the average, None while the rate is unknown."""
        if value is None or self._value is None:
            self._value = value
        else:
            weight = 1 - math.exp(-max(0.0, at_seconds - self._at) / SMOOTH_SECONDS)
            self._value += (value - self._value) * weight
        self._at = at_seconds
        return self._value


class UsualFigure:
    """The usual value of a figure."""

    def __init__(self, value: float | None = None) -> None:
        self._value = value
        self._known_seconds = FIRST_SECONDS if value is not None else 0.0
        self._unusual_seconds = 0.0
        self._at: float | None = None

    def add(self, value: float | None, at_seconds: float) -> None:
        """Add a sample, about one per second."""
        elapsed = 0.0 if self._at is None else max(0.0, at_seconds - self._at)
        self._at = at_seconds
        if value is None:
            return
        if self._value is None:
            self._value = value
        elif self.is_unusual(value) and self._unusual_seconds < RELEARN_SECONDS:
            self._unusual_seconds += elapsed
            return
        self._unusual_seconds = 0.0
        self._known_seconds += elapsed
        # At first it is the mean of all samples.
        first = elapsed / max(self._known_seconds, 1.0)
        self._value += (value - self._value) * min(1.0, max(first, 1 - math.exp(-elapsed / USUAL_SECONDS)))

    def is_unusual(self, value: float) -> bool:
        return self.value is not None and value > UNUSUAL * self.value

    @property
    def value(self) -> float | None:
        """Return the value, rounded so that it rarely changes; None with too few samples."""
        if self._value is None or self._known_seconds < FIRST_SECONDS:
            return None
        return float(f"{self._value:.{DIGITS}g}")


class QueueMemory:
    """The past of all queues. before: the snapshot that another watcher left."""

    def __init__(self, before: Snapshot) -> None:
        rows = before.queues
        self._services = {name: UsualFigure(row.usual_service_seconds) for name, row in rows.items()}
        self._arrivals = {name: UsualFigure(row.usual_in_per_second) for name, row in rows.items()}
        self._recent: dict[str, SmoothedRate] = {}
        self._bursts = {name: row.burst_at for name, row in rows.items()}
        self._changes = {name: row.handler_changed_at for name, row in rows.items()}
        self._catching_up = {name: row.catching_up for name, row in rows.items()}
        self._outages: dict[str, float] = {}
        self._failed: dict[str, float] = {}  # when the backlog of a queue last grew instead of falling
        self._handlers: dict[str, object] = {}

    def add(self, snapshot: Snapshot, specs: Mapping[str, QueueSpec], at_seconds: float) -> Snapshot:
        """Return the snapshot with what is known of the past of its queues."""
        now = snapshot.at or 0.0
        queues = {
            name: self._describe(name, row, specs.get(name), now, at_seconds) for name, row in snapshot.queues.items()
        }
        return replace_fields(snapshot, queues=queues)

    def begin_catching_up(
        self, snapshot: Snapshot, before: Mapping[str, SubjectState], states: Mapping[str, SubjectState]
    ) -> Snapshot | None:
        """Return the snapshot with the queues whose cause has just ended; None if there are none.

        before: the states of the previous second, states: those of this one.
        """
        now, begun = snapshot.at or 0.0, {}
        for subject, cause in before.items():
            is_watched = cause.kind in OUTAGES and subject not in NO_OUTAGES
            if is_watched and _is_outage(cause) and not _is_outage(states.get(subject)):
                self._outages[subject] = now
        for name, row in snapshot.queues.items():
            state, earlier = states.get(f"queue/{name}"), before.get(f"queue/{name}")
            if state is None or earlier is None or not state.late:
                continue
            paused = find_pause(name, CONSUMPTION, snapshot) is not None
            slow = earlier.late and "slower" in earlier.finding and compute_slowdown(row) is None
            ended = (
                "a slow handler" if slow else _describe_ended_cause(earlier, before, snapshot) if earlier.late else ""
            )
            ended = ended or _describe_freed_slots(name, snapshot) or self._describe_outage(row, snapshot)
            is_cause = bool(state.affected) and not slow
            # A slow handler, a burst, and a backlog that did not fall have a cause of their own.
            is_recent = 0.0 <= now - self._failed.get(name, -math.inf) <= FAILED_SECONDS
            has_own = compute_slowdown(row) is not None or row.burst_at == now or is_recent
            free = state.within is None and row.catching_up is None and not is_cause
            if ended and free and not paused and not has_own:
                begun[name] = CatchUp(after=ended, since=now, least_events=row.waiting_events or 0, least_at=now)
        if not begun:
            return None
        self._catching_up |= begun
        queues = {
            name: replace_fields(row, catching_up=begun.get(name, row.catching_up))
            for name, row in snapshot.queues.items()
        }
        return replace_fields(snapshot, queues=queues)

    def _describe_outage(self, row: QueueStatus, snapshot: Snapshot) -> str:
        """Return the outage that has just ended and made a queue late, as a noun; "" if there was none."""
        now = snapshot.at or 0.0
        for subject, at in self._outages.items():
            kind, _, name = subject.partition("/")
            fits = {"plant": row.kind == "jobs", "pipeline": row.kind == "pipeline", "node": name in row.containers}
            if fits[kind] and 0.0 <= now - at <= OUTAGE_SECONDS and row.trend != "rising":
                return _name_outage(kind, name, snapshot)
        return ""

    def _describe(
        self, name: str, row: QueueStatus, spec: QueueSpec | None, now: float, at_seconds: float
    ) -> QueueStatus:
        service, arrivals = (figures.setdefault(name, UsualFigure()) for figures in (self._services, self._arrivals))
        service.add(row.service_seconds, at_seconds)
        incoming = self._recent.setdefault(name, SmoothedRate()).add(row.in_per_second, at_seconds)
        if incoming is not None and incoming >= MIN_BURST_PER_SECOND and arrivals.is_unusual(incoming):
            self._bursts[name] = now
        elif (row.waiting_events or 0) <= (row.in_per_second or 0.0):
            self._bursts[name] = None  # What it left is worked off.
        arrivals.add(incoming, at_seconds)
        if spec is not None:
            handler = (spec.handler, dict(spec.handler_options))
            if self._handlers.setdefault(name, handler) != handler:
                self._handlers[name], self._changes[name] = handler, now
        row = replace_fields(
            row,
            usual_service_seconds=service.value,
            usual_in_per_second=arrivals.value,
            burst_at=self._bursts.get(name),
            handler_changed_at=self._changes.get(name),
        )
        before = self._catching_up.get(name)
        after = self._catching_up[name] = _advance_catch_up(before, row, now)
        if before is not None and after is None and (row.waiting_events or 0) > before.least_events:
            self._failed[name] = now
        return replace_fields(row, catching_up=after)


def _describe_freed_slots(name: str, snapshot: Snapshot) -> str:
    """Return that a queue waited for worker slots until lately, as a noun; "" if it did not."""
    crowd = snapshot.crowd
    holder = crowd.crowded.get(name) if crowd else None
    if crowd is None or holder is None or holder not in snapshot.queues:
        return ""
    paused = find_pause(holder, CONSUMPTION, snapshot) is not None
    is_over = not crowd.active or paused or snapshot.queues[holder].catching_up is not None
    return f"waiting for slots that {holder} held" if is_over else ""


def _describe_ended_cause(earlier: SubjectState, before: Mapping[str, SubjectState], snapshot: Snapshot) -> str:
    """Return what made a queue late until now and has ended, as a noun; "" if nothing did."""
    if earlier.severity == "notice" and earlier.finding.startswith(f"Queue {earlier.name} is paused"):
        return "its pause"
    cause = before.get(earlier.within or "")
    if cause is None:
        return ""
    if cause.kind == "queue":
        return f"waiting for slots that {cause.name} held"
    return _name_outage(cause.kind, cause.name, snapshot)


def _name_outage(kind: str, name: str, snapshot: Snapshot) -> str:
    """Return an outage as a noun. A component that starts for the first time had none."""
    parts = {"plant": CONSUMERS["jobs"], "node": format_node_part(name)}
    if find_settling(snapshot.parts, [parts.get(kind, CONSUMERS["pipeline"])]) is not None:
        starts = {"plant": "the start of its workers", "pipeline": "the start of the pipeline"}
        return starts.get(kind, f"the start of {kind} {name}")
    what = {"plant": "the outage of its workers", "pipeline": "the outage of the pipeline"}
    return what.get(kind, f"a problem with {kind} {name}")


def _is_outage(state: SubjectState | None) -> bool:
    if state is None or state.within is not None:
        return False
    return state.severity == "critical" or (state.kind == "pipeline" and bool(state.affected))


def _advance_catch_up(known: CatchUp | None, row: QueueStatus, now: float) -> CatchUp | None:
    """Return the catch-up of a queue, which ends with its backlog, or when the backlog no longer falls."""
    if known is None or any(pause.part == CONSUMPTION for pause in row.pauses):
        return None
    waiting = row.waiting_events
    if compute_slowdown(row) is not None or row.burst_at == now:
        return None
    if waiting is not None and waiting > GROWTH * known.least_events and now - known.least_at > GROWTH_SECONDS:
        return None
    if waiting is not None and waiting < known.least_events:
        return replace_fields(known, least_events=waiting, least_at=now)
    return known if 0.0 <= now - known.least_at <= FALLING_SECONDS else None
