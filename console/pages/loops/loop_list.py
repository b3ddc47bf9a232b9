"""The list of loops: grouped by law or by queue, the worst first, or flat.

The loops of a law on the nodes of a queue are one row. Loops on hold, and loops without a change in the period, are
one line each.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.db.models import Count, Max
from django.urls import reverse

from console.accounts.access import Actor
from console.display.loops import DescribedLoop, describe_loops
from console.display.states import compute_loop_severity, compute_tick_lateness
from console.incidents.quick_actions import EXPIRY_CHOICES, QuickAction
from workers.control.kinds.registry import find_display
from workers.control.parts.kind import Lanes
from workers.documents.loops import LoopStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Override

PERIOD = timedelta(minutes=15)
MAX_FLAT = 60  # rows; each is updated every second
Grouping = Literal["law", "queue", "flat"]
GROUPINGS: dict[Grouping, str] = {"law": "By law", "queue": "By queue", "flat": "Flat"}
State = Literal["without effect", "acted", "hold", "idle"]
STATES: dict[State, str] = {
    "without effect": "No effect or advice", "acted": "Acted", "hold": "On hold", "idle": "Idle",
}  # fmt: skip
NO_EFFECT = (LedgerEntry.Verdict.INEFFECTIVE, LedgerEntry.Verdict.HARMFUL)
HOLD_EFFECT = "It keeps its last value and takes no action until the hold ends."


@dataclass(frozen=True, kw_only=True)
class ListedLoop(DescribedLoop):
    """A loop in the list, its delay (0: on time), and the severity of the delay and of its last decision."""

    lanes: Lanes
    late_seconds: float
    badness: float

    @property
    def held_by(self) -> Override | None:
        """Return the override that holds it."""
        return next((override for override in self.overrides if override.name == "mode"), None)


@dataclass(frozen=True, kw_only=True)
class RecentChanges:
    """The actions or advice of loops in the period: their number, and the newest."""

    count: int
    newest: LedgerEntry


@dataclass(frozen=True, kw_only=True)
class ShownLoops:
    """A row: a loop, or the loops of a law on the nodes of a queue, of which `worst` is shown.

    parts: the nodes, or what it measures.
    """

    title: str
    parts: str
    loops: Sequence[ListedLoop]
    worst: ListedLoop
    status: LoopStatus | None
    state: State
    changes: RecentChanges | None
    hold: QuickAction | None

    @property
    def mode(self) -> str:
        modes = {loop.mode for loop in self.loops}
        return modes.pop() if len(modes) == 1 else "mixed"

    @property
    def names(self) -> str:
        """Return the names of its loops, for the script that shows the worst value."""
        return " ".join(loop.name for loop in self.loops)


@dataclass(frozen=True, kw_only=True)
class LoopGroup:
    """Rows under one heading; idle ones are folded into one line."""

    title: str
    about: str
    rows: Sequence[ShownLoops]
    idle: Sequence[ShownLoops]

    @property
    def count(self) -> int:
        return sum(len(row.loops) for row in (*self.rows, *self.idle))


@dataclass(frozen=True, kw_only=True)
class FilterChip:
    """A filter by state; "" for all."""

    state: str
    words: str
    count: int


@dataclass(frozen=True, kw_only=True)
class GroupedLoops:
    """The groups of the list, the loops on hold by law, and the groups without a change."""

    groups: Sequence[LoopGroup]
    held: Sequence[ShownLoops]
    idle: Sequence[ShownLoops]
    flat: Sequence[ShownLoops]
    left_out: int  # of the flat list
    chips: Sequence[FilterChip]
    modes: dict[str, int]
    total: int


def build_loop_list(
    snapshot: Snapshot, actor: Actor, now: datetime, by: Grouping, shown: str, is_whole: bool = False
) -> GroupedLoops:
    """Return the loops of a snapshot. shown: the state to show, "" for all; is_whole: list all, not only the worst."""
    listed = [_list_loop(loop, snapshot) for loop in describe_loops(now)]
    changes = _load_changes(now)
    whole = [_build_row(group, snapshot, actor, changes, by) for group in _merge(listed, by)]
    counts = {state: sum(len(row.loops) for row in whole if row.state == state) for state in STATES}
    rows = sorted((row for row in whole if shown in ("", row.state)), key=_order)
    active = [row for row in rows if row.state != "hold"]
    groups = [] if by == "flat" else _group(active, by)
    return GroupedLoops(
        groups=[group for group in groups if group.rows],
        held=[row for row in rows if row.state == "hold"] if by != "flat" else [],
        idle=[row for group in groups if not group.rows for row in group.idle],
        flat=(rows if is_whole else rows[:MAX_FLAT]) if by == "flat" else [],
        left_out=max(0, len(rows) - MAX_FLAT) if by == "flat" and not is_whole else 0,
        chips=[
            FilterChip(state="", words="All", count=len(listed)),
            *(FilterChip(state=state, words=words, count=counts[state]) for state, words in STATES.items()),
        ],
        modes={mode: sum(loop.mode == mode for loop in listed) for mode in Loop.Mode.values},
        total=len(listed),
    )


def _list_loop(described: DescribedLoop, snapshot: Snapshot) -> ListedLoop:
    status = snapshot.loops.get(described.name)
    late = compute_tick_lateness(status, described.interval_seconds, snapshot.at)
    lanes, badness = find_display(described.law, described.target).lanes, compute_loop_severity(status, late)
    return ListedLoop(**vars(described), lanes=lanes, late_seconds=late, badness=badness)


def _merge(loops: Iterable[ListedLoop], by: Grouping) -> list[list[ListedLoop]]:
    """Return the loops of each row: those of a law on the nodes of a queue together, the worst first."""
    rows: dict[object, list[ListedLoop]] = {}
    for loop in loops:
        is_shared = by != "flat" and {"queue", "node"} <= set(loop.target) and loop.mode not in Loop.HANDED_OVER
        rows.setdefault((loop.law, loop.target["queue"]) if is_shared else loop.name, []).append(loop)
    return [sorted(row, key=lambda loop: -loop.badness) for row in rows.values()]


def _load_changes(now: datetime) -> dict[int, RecentChanges]:
    """Return the changes of each loop in the period, by its id."""
    acted = LedgerEntry.objects.filter(acted=True, at__gt=now - PERIOD, at__lte=now).exclude(mode=Loop.Mode.HOLD)
    rows = list(acted.values_list("loop").annotate(count=Count("pk"), newest=Max("pk")).order_by())
    newest = LedgerEntry.objects.select_related("loop").in_bulk([last for _, _, last in rows])
    return {loop: RecentChanges(count=count, newest=newest[last]) for loop, count, last in rows if last in newest}


def _build_row(
    loops: list[ListedLoop], snapshot: Snapshot, actor: Actor, changes: dict[int, RecentChanges], by: Grouping
) -> ShownLoops:
    found = [changes[loop.id] for loop in loops if loop.id in changes]
    newest = max((change.newest for change in found), key=lambda entry: entry.at, default=None)
    made = None if newest is None else RecentChanges(count=sum(change.count for change in found), newest=newest)
    worst = loops[0]
    target = " ".join(value for key, value in worst.target.items() if len(loops) == 1 or key != "node")
    nodes = ", ".join(sorted(loop.target.get("node", "") for loop in loops))
    return ShownLoops(
        title={"law": target or "all nodes", "queue": _describe_law(worst.law), "flat": ""}[by],
        parts=nodes if len(loops) > 1 else worst.lanes.measured.partition(",")[0].lower(),
        loops=loops,
        worst=worst,
        status=snapshot.loops.get(worst.name),
        state=_judge(loops, made),
        changes=made,
        hold=_build_hold(loops, actor),
    )


def _judge(loops: Sequence[ListedLoop], changes: RecentChanges | None) -> State:
    if all(loop.mode in Loop.HANDED_OVER for loop in loops):
        return "hold"
    if any(loop.late_seconds for loop in loops):
        return "without effect"
    if changes is None:
        return "idle"
    is_advice = changes.newest.mode == Loop.Mode.ADVISE
    return "without effect" if is_advice or changes.newest.verdict in NO_EFFECT else "acted"


def _build_hold(loops: Sequence[ListedLoop], actor: Actor) -> QuickAction | None:
    """Return the button that holds the loops of a row; None if they are on hold, or the actor may not."""
    first, may = loops[0], "loop.mode" if len(loops) == 1 else "override.set"
    if first.mode in Loop.HANDED_OVER or not actor.may_somewhere(may):
        return None
    if len(loops) == 1:
        url, fields = reverse("loop-mode", args=[first.id]), {"mode": "hold"}
    else:
        url = reverse("override-create")
        fields = {"law": first.law, "queue": first.target["queue"], "name": "mode", "value": "hold"}
    return QuickAction(
        words="Hold 30 min",
        url=url,
        may=may,
        fields=fields,
        effect=HOLD_EFFECT,
        ends=EXPIRY_CHOICES,
        subject=f"loop/{first.name}",
        value="hold",
    )


def _group(rows: Iterable[ShownLoops], by: Grouping) -> list[LoopGroup]:
    """Return the rows by law or queue; the group of the worst row comes first."""
    groups: dict[str, list[ShownLoops]] = {}
    for row in rows:
        key = row.worst.law if by == "law" else row.worst.target.get("queue", "")
        groups.setdefault(key, []).append(row)
    return [
        LoopGroup(
            title=_describe_law(key) if by == "law" else key or "Whole plant",
            about=find_display(key).purpose.rstrip(".") if by == "law" else "",
            rows=[row for row in found if row.state != "idle"],
            idle=[row for row in found if row.state == "idle"],
        )
        for key, found in groups.items()
    ]


def _describe_law(law: str) -> str:
    words = find_display(law).title or law.replace("_", " ")
    return words[:1].upper() + words[1:]


def _order(row: ShownLoops) -> tuple[int, float, bool, int, str]:
    """Return the sort key: by state, then the worst first, actions before advice, then the most changes."""
    changes = row.changes
    is_advice = changes is not None and changes.newest.mode == Loop.Mode.ADVISE
    count = changes.count if changes else 0
    return list(STATES).index(row.state), -row.worst.badness, is_advice, -count, row.worst.name
