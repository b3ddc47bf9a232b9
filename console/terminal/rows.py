"""The lists of a terminal: the worst, incidents, loops, queues, and manual changes in force."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from console.display.formats import UNKNOWN, formatted
from console.display.severity_states import SEVERITY_STATES
from console.display.state_words import STATE_WORDS, VERDICT_WORDS
from console.display.worst_first import worst_first
from console.terminal import acts
from console.terminal.acts import Act
from console.terminal.plain_text import cell
from queues import pausing
from queues.nodes.node_state import BUSY, IDLE, NORMAL, OFFLINE, TOOBUSY
from workers.documents.alerts import AlertStatus
from workers.documents.loops import ManualChange, OverrideStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.snapshot.states.evaluate import states_of

GLYPHS = {IDLE: "○", NORMAL: "●", BUSY: "▲", TOOBUSY: "■", OFFLINE: "◌"}
STYLES = {IDLE: "blue", NORMAL: "green", BUSY: "bold yellow", TOOBUSY: "bold red", OFFLINE: "dim"}
MAX_ROWS = 500
HOLD, PAUSE, PAUSE_INTAKE, ACKNOWLEDGE, END = "hold", "pause", "pause_intake", "acknowledge", "end"


@dataclass(frozen=True)
class TerminalRow:
    """details: what does not fit its line, a sentence each. acts: its actions, by name. incident: its number,
    if it is an incident.
    """

    key: str
    cells: Sequence[Text]
    details: Sequence[str] = ()
    acts: Mapping[str, Act] = field(default_factory=dict)
    incident: int | None = None


@dataclass(frozen=True)
class TerminalTable:
    """A table: its rows of a snapshot, at an instant of the plant's clock. empty: the text without rows."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Callable[[Snapshot, float], list[TerminalRow]]
    empty: str


def state_cell(sign: str | None, word: str = "", stale: bool = False) -> Text:
    """Return glyph and word, with the color as a third sign; stale states are marked."""
    shown = word or STATE_WORDS.get(sign or "", UNKNOWN)
    glyph = GLYPHS.get(sign or "", "·")
    return cell(f"{glyph} {shown}{' (old)' if stale else ''}", "dim" if stale else STYLES.get(sign or "", ""))


def worst_rows(snapshot: Snapshot, now: float) -> list[TerminalRow]:
    states = states_of(snapshot)
    return [
        TerminalRow(
            subject.subject,
            (
                state_cell(subject.state, subject.word, subject.stale),
                cell(f"{subject.kind} {subject.name}"),
                cell(subject.finding or ""),
            ),
            details=[text for text in (subject.finding, states[subject.subject].step) if text],
            acts=_acts_of(snapshot, subject.kind, subject.name),
        )
        for subject in worst_first(snapshot)
    ]


def _acts_of(snapshot: Snapshot, kind: str, name: str) -> dict[str, Act]:
    if kind == "loop" and name in snapshot.loops:
        loop = snapshot.loops[name]
        return {} if loop.mode == "hold" else {HOLD: acts.hold(name, loop)}
    if kind == "queue" and name in snapshot.queues:
        return {
            PAUSE: acts.pause(name, pausing.CONSUMPTION),
            PAUSE_INTAKE: acts.pause(name, pausing.INTAKE),
        }
    return {}


def incident_rows(snapshot: Snapshot, now: float) -> list[TerminalRow]:
    """Return the incidents; alerts that another one explains are part of its incident."""
    return [_incident(alert, now) for alert in snapshot.alerts if alert.under is None]


def _incident(alert: AlertStatus, now: float) -> TerminalRow:
    acknowledged = alert.quiet == "acknowledged" and alert.acknowledged_by
    quiet = f"acknowledged by {alert.acknowledged_by}" if acknowledged else alert.quiet or ""
    since = UNKNOWN if alert.since is None else formatted(max(0.0, now - alert.since), "age")
    return TerminalRow(
        str(alert.id),
        (
            state_cell(SEVERITY_STATES.get(alert.severity), alert.severity.capitalize()),
            cell(since),
            cell(alert.title),
            cell(quiet),
        ),
        details=[text for text in (alert.sentence, alert.explanation) if text],
        acts={} if alert.state == "acknowledged" else {ACKNOWLEDGE: acts.acknowledge(alert)},
        incident=alert.id,
    )


def loop_rows(snapshot: Snapshot, now: float) -> list[TerminalRow]:
    """Return the loops, the worst first, as pages list them."""
    states = states_of(snapshot)
    order = [subject.name for subject in worst_first(snapshot) if subject.kind == "loop"]
    names = [*order, *sorted(snapshot.loops.keys() - set(order))]
    rows = {name: states.get(f"loop/{name}") for name in names if name in snapshot.loops}
    return [_loop(snapshot, name, state.finding if state else "") for name, state in rows.items()]


def _loop(snapshot: Snapshot, name: str, finding: str) -> TerminalRow:
    loop = snapshot.loops[name]
    return TerminalRow(
        name,
        (
            cell(loop.mode, "" if loop.mode == "auto" else "bold"),
            cell(name),
            cell(VERDICT_WORDS.get(loop.verdict or "", UNKNOWN)),
            cell(finding or loop.reason or ""),
        ),
        details=[text for text in (finding, loop.reason) if text],
        acts=_acts_of(snapshot, "loop", name),
    )


def queue_rows(snapshot: Snapshot, now: float) -> list[TerminalRow]:
    order = [subject.name for subject in worst_first(snapshot) if subject.kind == "queue"]
    return [_queue(snapshot, name, snapshot.queues[name]) for name in order]


def _queue(snapshot: Snapshot, name: str, queue: QueueStatus) -> TerminalRow:
    state = states_of(snapshot)[f"queue/{name}"]
    paused = ", ".join(f"{pause.part} by {pause.by}" for pause in queue.pauses)
    trend = f" {queue.trend}" if queue.trend in ("rising", "falling") else ""
    return TerminalRow(
        name,
        (
            state_cell(state.sign, state.word, state.stale),
            cell(name),
            cell(f"{formatted(queue.waiting_events, 'integer')}{trend}"),
            cell(formatted(queue.wait_seconds, "seconds")),
            cell(formatted(queue.in_per_second, "rate")),
            cell(formatted(queue.out_per_second, "rate")),
            cell(paused, "bold"),
        ),
        details=[text for text in (state.finding, queue.trouble, paused and f"Paused: {paused}") if text],
        acts=_acts_of(snapshot, "queue", name),
    )


def force_rows(snapshot: Snapshot, now: float) -> list[TerminalRow]:
    """Return manual changes: overrides, the soonest to end first, and those without an override."""
    hands = [_hand(hand, now) for hand in snapshot.hands]
    return [*(_override(override, now) for override in snapshot.overrides), *hands]


def _override(override: OverrideStatus, now: float) -> TerminalRow:
    words = f"{override.name} {formatted(override.value)}"
    return TerminalRow(
        str(override.id),
        (
            cell(ends_in(override.expires_at, now)),
            cell(words),
            cell(override.scope),
            cell(override.owner),
            cell(override.reason),
        ),
        details=[f"{words} on {override.scope}, by {override.owner}: {override.reason}"],
        acts={END: acts.end(override)},
    )


def _hand(hand: ManualChange, now: float) -> TerminalRow:
    words = f"{hand.kind} {hand.value}"
    return TerminalRow(
        f"{hand.kind} {hand.of} {hand.value}",
        (cell(ends_in(hand.until, now)), cell(words), cell(hand.of), cell(hand.owner), cell(hand.reason)),
        details=[f"{words} of {hand.of}: end this change on its page"],
    )


def ends_in(until: float | None, now: float) -> str:
    """Return the time left."""
    return "no expiry" if until is None else formatted(max(0.0, until - now), "countdown")


def limit_rows(rows: list[TerminalRow]) -> list[TerminalRow]:
    """Return as many rows as a terminal can draw each second, one row a subject, and the number of omitted
    ones.
    """
    once = list({row.key: row for row in rows}.values())
    if len(once) <= MAX_ROWS:
        return once
    more = f"{len(once) - MAX_ROWS:,} more rows are not shown; see the pages of the console."
    return [*once[:MAX_ROWS], TerminalRow("(more)", [cell("…"), cell(more)])]


WORST = ("State", "Subject", "Finding")
INCIDENTS = ("Severity", "Since", "Incident", "Suppressed")
LOOPS = ("Mode", "Loop", "Effect", "Reason")
QUEUES = ("State", "Queue", "Waiting", "Wait, s", "In /s", "Out /s", "Paused")
FORCE = ("Ends in", "Change", "Subject", "By", "Reason")
LISTINGS = (
    TerminalTable("worst", "States", WORST, worst_rows, "No plant data."),
    TerminalTable("incidents", "Incidents", INCIDENTS, incident_rows, "No open incidents."),
    TerminalTable("loops", "Loops", LOOPS, loop_rows, "No loops."),
    TerminalTable("queues", "Queues", QUEUES, queue_rows, "No queues."),
    TerminalTable("force", "In force", FORCE, force_rows, "No manual changes in force."),
)


def figures(snapshot: Snapshot) -> str:
    """Return the strip's figures, in a line."""
    totals = snapshot.totals
    trend = f", {totals.backlog_trend}" if totals.backlog_trend else ""
    shed = UNKNOWN if totals.shed_share is None else f"{formatted(totals.shed_share, 'share')} %"
    return " · ".join(
        (
            f"in {formatted(totals.in_per_second, 'rate')}/s",
            f"out {formatted(totals.out_per_second, 'rate')}/s",
            f"p95 {formatted(totals.latency_p95_seconds, 'seconds')} s",
            f"backlog {formatted(totals.backlog_seconds, 'seconds')} s{trend}",
            f"shed {shed}",
            f"nodes {formatted(totals.nodes_in_use)}/{formatted(totals.nodes)}",
            f"workers {formatted(totals.workers_at_work, 'rate')}/{formatted(totals.worker_slots)}",
        )
    )
