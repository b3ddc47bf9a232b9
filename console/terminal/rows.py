"""The lists of a terminal: the worst, incidents, loops, queues, and manual changes in force."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from console.display.formats import UNKNOWN, format_value
from console.display.severity_states import SEVERITY_STATES
from console.display.state_words import STATE_WORDS, VERDICT_WORDS
from console.display.worst_first import rank_subjects
from console.terminal import acts
from console.terminal.acts import Act
from console.terminal.plain_text import build_cell
from queues import pausing
from queues.nodes.node_state import BUSY, IDLE, NORMAL, OFFLINE, TOOBUSY
from workers.documents.alerts import AlertStatus
from workers.documents.loops import ManualChange, OverrideStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.snapshot.evaluate import get_states

GLYPHS = {IDLE: "○", NORMAL: "●", BUSY: "▲", TOOBUSY: "■", OFFLINE: "◌"}
STYLES = {IDLE: "blue", NORMAL: "green", BUSY: "bold yellow", TOOBUSY: "bold red", OFFLINE: "dim"}
MAX_ROWS = 500
HOLD, PAUSE, PAUSE_INTAKE, ACKNOWLEDGE, END = "hold", "pause", "pause_intake", "acknowledge", "end"


@dataclass(frozen=True)
class TerminalRow:
    """A row of the terminal.

    details: what does not fit its line, a sentence each. acts: its actions, by name. incident: its number, if it is an
    incident.
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


def build_state_cell(sign: str | None, word: str = "", stale: bool = False) -> Text:
    """Return glyph and word, with the color as a third sign; stale states are marked."""
    shown = word or STATE_WORDS.get(sign or "", UNKNOWN)
    glyph = GLYPHS.get(sign or "", "·")
    return build_cell(f"{glyph} {shown}{' (old)' if stale else ''}", "dim" if stale else STYLES.get(sign or "", ""))


def build_worst_rows(snapshot: Snapshot, now: float) -> list[TerminalRow]:
    states = get_states(snapshot)
    return [
        TerminalRow(
            subject.subject,
            (
                build_state_cell(subject.state, subject.word, subject.stale),
                build_cell(f"{subject.kind} {subject.name}"),
                build_cell(subject.finding or ""),
            ),
            details=[text for text in (subject.finding, states[subject.subject].step) if text],
            acts=_list_actions(snapshot, subject.kind, subject.name),
        )
        for subject in rank_subjects(snapshot)
    ]


def _list_actions(snapshot: Snapshot, kind: str, name: str) -> dict[str, Act]:
    if kind == "loop" and name in snapshot.loops:
        loop = snapshot.loops[name]
        return {} if loop.mode == "hold" else {HOLD: acts.hold(name, loop)}
    if kind == "queue" and name in snapshot.queues:
        return {PAUSE: acts.pause(name, pausing.CONSUMPTION), PAUSE_INTAKE: acts.pause(name, pausing.INTAKE)}
    return {}


def build_incident_rows(snapshot: Snapshot, now: float) -> list[TerminalRow]:
    """Return the incidents; alerts that another one explains are part of its incident."""
    return [_build_incident_row(alert, now) for alert in snapshot.alerts if alert.under is None]


def _build_incident_row(alert: AlertStatus, now: float) -> TerminalRow:
    acknowledged = alert.quiet == "acknowledged" and alert.acknowledged_by
    quiet = f"acknowledged by {alert.acknowledged_by}" if acknowledged else alert.quiet or ""
    since = UNKNOWN if alert.since is None else format_value(max(0.0, now - alert.since), "age")
    return TerminalRow(
        str(alert.id),
        (
            build_state_cell(SEVERITY_STATES.get(alert.severity), alert.severity.capitalize()),
            build_cell(since),
            build_cell(alert.title),
            build_cell(quiet),
        ),
        details=[text for text in (alert.sentence, alert.explanation) if text],
        acts={} if alert.state == "acknowledged" else {ACKNOWLEDGE: acts.acknowledge(alert)},
        incident=alert.id,
    )


def build_loop_rows(snapshot: Snapshot, now: float) -> list[TerminalRow]:
    """Return the loops, the worst first, as pages list them."""
    states = get_states(snapshot)
    order = [subject.name for subject in rank_subjects(snapshot) if subject.kind == "loop"]
    names = [*order, *sorted(snapshot.loops.keys() - set(order))]
    rows = {name: states.get(f"loop/{name}") for name in names if name in snapshot.loops}
    return [_build_loop_row(snapshot, name, state.finding if state else "") for name, state in rows.items()]


def _build_loop_row(snapshot: Snapshot, name: str, finding: str) -> TerminalRow:
    loop = snapshot.loops[name]
    return TerminalRow(
        name,
        (
            build_cell(loop.mode, "" if loop.mode == "auto" else "bold"),
            build_cell(name),
            build_cell(VERDICT_WORDS.get(loop.verdict or "", UNKNOWN)),
            build_cell(finding or loop.reason or ""),
        ),
        details=[text for text in (finding, loop.reason) if text],
        acts=_list_actions(snapshot, "loop", name),
    )


def queue_rows(snapshot: Snapshot, now: float) -> list[TerminalRow]:
    order = [subject.name for subject in rank_subjects(snapshot) if subject.kind == "queue"]
    return [_queue(snapshot, name, snapshot.queues[name]) for name in order]


def _queue(snapshot: Snapshot, name: str, queue: QueueStatus) -> TerminalRow:
    state = get_states(snapshot)[f"queue/{name}"]
    paused = ", ".join(f"{pause.part} by {pause.by}" for pause in queue.pauses)
    trend = f" {queue.trend}" if queue.trend in ("rising", "falling") else ""
    return TerminalRow(
        name,
        (
            build_state_cell(state.sign, state.word, state.stale),
            build_cell(name),
            build_cell(f"{format_value(queue.waiting_events, 'integer')}{trend}"),
            build_cell(format_value(queue.wait_seconds, "seconds")),
            build_cell(format_value(queue.in_per_second, "rate")),
            build_cell(format_value(queue.out_per_second, "rate")),
            build_cell(paused, "bold"),
        ),
        details=[text for text in (state.finding, queue.trouble, paused and f"Paused: {paused}") if text],
        acts=_list_actions(snapshot, "queue", name),
    )


def force_rows(snapshot: Snapshot, now: float) -> list[TerminalRow]:
    """Return manual changes: overrides, the soonest to end first, and those without an override."""
    hands = [_hand(hand, now) for hand in snapshot.hands]
    return [*(_build_override_row(override, now) for override in snapshot.overrides), *hands]


def _build_override_row(override: OverrideStatus, now: float) -> TerminalRow:
    words = f"{override.name} {format_value(override.value)}"
    return TerminalRow(
        str(override.id),
        (
            build_cell(ends_in(override.expires_at, now)),
            build_cell(words),
            build_cell(override.scope),
            build_cell(override.owner),
            build_cell(override.reason),
        ),
        details=[f"{words} on {override.scope}, by {override.owner}: {override.reason}"],
        acts={END: acts.end(override)},
    )


def _hand(hand: ManualChange, now: float) -> TerminalRow:
    words = f"{hand.kind} {hand.value}"
    return TerminalRow(
        f"{hand.kind} {hand.of} {hand.value}",
        (
            build_cell(ends_in(hand.until, now)),
            build_cell(words),
            build_cell(hand.of),
            build_cell(hand.owner),
            build_cell(hand.reason),
        ),
        details=[f"{words} of {hand.of}: end this change on its page"],
    )


def ends_in(until: float | None, now: float) -> str:
    """Return the time left."""
    return "no expiry" if until is None else format_value(max(0.0, until - now), "countdown")


def limit_rows(rows: list[TerminalRow]) -> list[TerminalRow]:
    """Return as many rows as a terminal can draw each second, and the number of omitted ones.

    Each subject has one row.
    """
    once = list({row.key: row for row in rows}.values())
    if len(once) <= MAX_ROWS:
        return once
    more = f"{len(once) - MAX_ROWS:,} more rows are not shown; see the pages of the console."
    return [*once[:MAX_ROWS], TerminalRow("(more)", [build_cell("…"), build_cell(more)])]


WORST = ("State", "Subject", "Finding")
INCIDENTS = ("Severity", "Since", "Incident", "Suppressed")
LOOPS = ("Mode", "Loop", "Effect", "Reason")
QUEUES = ("State", "Queue", "Waiting", "Wait, s", "In /s", "Out /s", "Paused")
FORCE = ("Ends in", "Change", "Subject", "By", "Reason")
LISTINGS = (
    TerminalTable("worst", "States", WORST, build_worst_rows, "No plant data."),
    TerminalTable("incidents", "Incidents", INCIDENTS, build_incident_rows, "No open incidents."),
    TerminalTable("loops", "Loops", LOOPS, build_loop_rows, "No loops."),
    TerminalTable("queues", "Queues", QUEUES, queue_rows, "No queues."),
    TerminalTable("force", "Manual changes", FORCE, force_rows, "No manual changes in force."),
)


def format_figures(snapshot: Snapshot) -> str:
    """Return the strip's figures, in a line."""
    totals = snapshot.totals
    trend = f", {totals.backlog_trend}" if totals.backlog_trend else ""
    shed = UNKNOWN if totals.shed_share is None else f"{format_value(totals.shed_share, 'share')} %"
    return " · ".join(
        (
            f"in {format_value(totals.in_per_second, 'rate')}/s",
            f"out {format_value(totals.out_per_second, 'rate')}/s",
            f"p95 {format_value(totals.latency_p95_seconds, 'seconds')} s",
            f"backlog {format_value(totals.backlog_seconds, 'seconds')} s{trend}",
            f"shed {shed}",
            f"nodes {format_value(totals.nodes_in_use)}/{format_value(totals.nodes)}",
            f"workers {format_value(totals.workers_at_work, 'rate')}/{format_value(totals.worker_slots)}",
        )
    )
