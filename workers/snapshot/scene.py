"""A snapshot as the finders of causes see it, and the wording that they share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.alerts.evaluation.impact import join_names
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import Severity, SubjectState, SuggestedAction
from workers.snapshot.judgement import WatchedSnapshot
from workers.snapshot.suggestions import format_seconds

SLOWER = 3.0  # times the usual time per event: less may be due to a busy host
CLEARLY_SLOWER = 5  # from here on, a handler counts before a burst
MIN_SLOW_LOAD = 0.2  # of a worker slot: below it, a slower handler makes no queue late
SLOW_SECONDS = 1.0  # per event: a handler that is slow without a usual time to compare with
STEPS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 200, 500, 1_000)  # coarse, so that a sentence stays
DOMINANT = 0.5  # share of the events of a sample
MIN_SAMPLE = 20
OLDEST_SHARE = 0.9
EARLY_SHARE = 0.25  # of the wait limit: from here on a burst or a slow handler is a warning
EARLY_SECONDS = 4.0  # but not below: batches of events and new workers cause such waits
# Seconds of arrivals that wait when a queue does not keep up. The pipeline reads its queues in batches.
BACKLOG_SECONDS = {"jobs": 1.0, "pipeline": 4.0}
MAX_ERROR = 120  # characters of an error's text
FILLS_SECONDS = 30.0  # of arrivals: a larger backlog is more than a consumer takes at once
BEHIND, SLOW, FILLING, PAUSED = "falls behind", "is slow", "is filling", "is paused"
DEAD_LETTERS = "has dead letters"
Subjects = Sequence[str]


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause. severity: None where it is that of its subject and of what it explains.

    replaces: the sentences of its subject that it says better, in addition to those of a backlog.
    is_independent: whether nothing else can cause it, so that it stays a cause beside a lost node.
    """

    subject: str
    sentence: str
    impact: str = ""
    affected: tuple[str, ...] = ()
    actions: tuple[SuggestedAction, ...] = ()
    severity: Severity | None = None
    replaces: tuple[str, ...] = ()
    is_independent: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """A snapshot with the states of its subjects, as far as they are known without causes."""

    watched: WatchedSnapshot
    states: Mapping[str, SubjectState]

    @property
    def snapshot(self) -> Snapshot:
        return self.watched.snapshot

    def list_troubled_queues(self, kind: str = "") -> list[str]:
        """Return the queues that are late or fill, by name, so that a sentence that lists them stays."""
        rows = self.snapshot.queues.items()
        names = [name for name, row in rows if (not kind or row.kind == kind) and self.has_backlog_problem(name)]
        return sorted(names)

    def has_backlog_problem(self, name: str) -> bool:
        return self.is_late(name) or is_filling(self.snapshot.queues[name])

    def is_late(self, name: str) -> bool:
        state = self.states.get(f"queue/{name}")
        return state is not None and state.late

    def waits_noticeably(self, name: str) -> bool:
        """Return whether the oldest event of a queue has waited for a notable part of its limit."""
        limit, wait = self.find_limit(name), self.snapshot.queues[name].wait_seconds
        return limit is not None and wait is not None and wait >= max(EARLY_SECONDS, EARLY_SHARE * limit)

    def has_caught_up(self, name: str) -> bool:
        """Return whether a late queue has no backlog any more: its figures are of events that have left it."""
        row, limit = self.snapshot.queues[name], self.find_limit(name)
        arrivals = max(1.0, BACKLOG_SECONDS.get(row.kind or "", 1.0) * (row.in_per_second or 0.0))
        if row.waiting_events is None or row.waiting_events > arrivals or is_filling(row):
            return False
        return row.wait_seconds is not None and (limit is None or row.wait_seconds < limit)

    def has_dead_letters(self, name: str) -> bool:
        """Return whether a queue has as many dead letters as a rule names."""
        count = self.snapshot.queues[name].dead_letters
        return bool(self.watched.list_exceeded("queue", name, "dead_letters", count, {"queue": name}))

    def is_critical(self, subject: str) -> bool:
        state = self.states.get(subject)
        return state is not None and state.severity == "critical"

    def list_loops(self, **target: str) -> list[str]:
        """Return the loops with a finding whose target has these values."""
        return [
            f"loop/{name}"
            for name, loop in self.snapshot.loops.items()
            if all(loop.target.get(key) == value for key, value in target.items())
            and (state := self.states.get(f"loop/{name}")) is not None
            and state.finding
        ]

    def find_limit(self, queue: str, condition: str = "queue_wait") -> float | None:
        return self.watched.limits.find_threshold(condition, {"queue": queue})

    def describe_waits(self, names: Subjects, subject: tuple[str, str] = ("", "")) -> str:
        """Return how long the oldest events of queues wait, with their limit; "" if that is unknown.

        subject: of the clause, in singular and plural, where the queues are named before it.
        """
        known = [name for name in names if self.snapshot.queues[name].wait_seconds is not None]
        if not known:
            return ""
        waits = [format_seconds(self.snapshot.queues[name].wait_seconds or 0.0) for name in known]
        limits = {limit for name in known if (limit := self.find_limit(name)) is not None}
        within = f" (limit {format_seconds(max(limits))})" if len(limits) == 1 else ""
        one, many = subject
        if len(known) == 1:
            return f"{one or f'the oldest event of {known[0]} waits'} {waits[0]}{within}"
        return f"{many or f'the oldest events of {join_names(known)} wait'} {join_names(waits)}{within}"


def describe_backlog(name: str, problem: str) -> str:
    """Return a backlog problem as a sentence: falls behind, is slow, is filling."""
    return f"Queue {name} {problem}."


def list_backlog_sentences(name: str) -> set[str]:
    """Return the sentences of a queue that a cause of its backlog replaces."""
    return {describe_backlog(name, problem) for problem in (BEHIND, SLOW, FILLING, PAUSED)}


def is_filling(queue: QueueStatus) -> bool:
    """Return whether a queue does not keep up: arrivals exceed output, and the backlog exceeds recent arrivals."""
    waiting, arrivals = queue.waiting_events or 0, queue.in_per_second or 0.0
    is_behind = waiting > BACKLOG_SECONDS.get(queue.kind or "", 1.0) * arrivals
    return (queue.trend == "rising" and is_behind) or waiting > FILLS_SECONDS * max(arrivals, 1.0)


def compute_slowdown(row: QueueStatus) -> int | None:
    """Return how many times slower than usual the handler is, in coarse steps; None if it is not."""
    if not row.service_seconds or not row.usual_service_seconds:
        return None
    is_light = row.service_seconds * (row.in_per_second or 0.0) < MIN_SLOW_LOAD
    if is_light and row.service_seconds < SLOW_SECONDS:
        return None
    times = row.service_seconds / row.usual_service_seconds
    return max(step for step in STEPS if step <= times) if times >= SLOWER else None


def is_slow(row: QueueStatus) -> bool:
    """Return whether the handler of a queue is slow, compared with its usual time or by itself."""
    return compute_slowdown(row) is not None or (row.service_seconds or 0.0) >= SLOW_SECONDS


def format_coarse(seconds: float) -> str:
    """Return a time in coarse steps, because a sentence that changes each second is unreadable."""
    if seconds < 2:
        return f"{seconds:.1g} s"
    return f"{max(step for step in STEPS if step <= seconds)} s"


def format_since(seconds: float | None) -> str:
    """Return an age in coarse steps, after a space; "" while it is short or unknown."""
    if seconds is None or seconds < 10:
        return ""
    return f" {seconds // 10 * 10:.0f} s ago" if seconds < 60 else f" {seconds // 60:.0f} min ago"


def describe_slots(slots: int, is_all: bool) -> str:
    """Return the worker slots that one queue holds: both worker slots."""
    if slots <= 1:
        return "the only worker slot"
    if not is_all:
        return f"most of the {slots} worker slots"
    return "both worker slots" if slots == 2 else f"all {slots} worker slots"


def describe_clearing(row: QueueStatus) -> str:
    """Return when a backlog is worked off at the present rate; "" if it does not fall, or too slowly."""
    seconds = row.clearing_seconds
    if seconds is None or row.trend == "rising" or seconds > 3_600.0:
        return ""
    arriving, leaving = row.in_per_second or 0.0, row.out_per_second or 0.0
    if leaving <= arriving:
        return ""
    return f"empty in about {format_seconds(seconds * leaving / (leaving - arriving))}"


def find_hot_key(snapshot: Snapshot, queue: str) -> str | None:
    """Return the key of most of the events that were sampled of a queue; None if there is none."""
    counts: dict[str, int] = {}
    events = 0
    for producer in snapshot.producers.values():
        if (sample := producer.samples.get(queue)) is not None:
            events += sample.events
            for key, count in sample.key.items():
                counts[key] = counts.get(key, 0) + count
    first = max(counts, key=lambda key: counts[key], default=None)
    if first is None or events < MIN_SAMPLE or len(counts) == 1 or counts[first] < DOMINANT * events:
        return None
    return first


def find_dominant_producer(snapshot: Snapshot, queue: str) -> str | None:
    """Return the producer that sends most of a queue's events, if there are others, too; None if there is none."""
    rates = {
        name: rate for name, producer in snapshot.producers.items() if (rate := producer.queues.get(queue)) is not None
    }
    whole, first = sum(rates.values()), max(rates, key=lambda name: rates[name], default=None)
    return first if first is not None and whole and rates[first] >= DOMINANT * whole else None


def describe_producer(snapshot: Snapshot, queue: str) -> str:
    """Return the dominant producer of a queue, after a space; "" if there is none."""
    producer = find_dominant_producer(snapshot, queue)
    return f" from {producer}" if producer else ""


def find_suspended(snapshot: Snapshot, *processes: str) -> str:
    """Return the first of these processes that is suspended; "" if none is."""
    return next(iter(list_processes(snapshot, "suspended", *processes)), "")


def list_processes(snapshot: Snapshot, kind: str, *processes: str) -> list[str]:
    """Return those of these processes that have an event of this kind, such as suspended or down."""
    events = {event.name for event in snapshot.processes if event.kind == kind}
    return [name for name in processes if name in events]


def waits_on(queue: QueueStatus, node: str) -> bool:
    """Return whether a queue waits because of a node: its oldest event is there, or if unknown, most events are."""
    part = queue.containers.get(node)
    if part is None:
        return False
    known = [row.oldest_seconds for row in queue.containers.values() if row.oldest_seconds is not None]
    if known:
        return part.oldest_seconds is not None and part.oldest_seconds >= OLDEST_SHARE * max(known)
    waiting = sum(row.waiting_events or 0 for row in queue.containers.values())
    return 2 * (part.waiting_events or 0) >= waiting


def shorten_error(text: str) -> str:
    """Return an error in one short line, without a full stop."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    line = " ".join(line.replace("“", '"').replace("”", '"').split()).rstrip(".")
    return line if len(line) <= MAX_ERROR else f"{line[: MAX_ERROR - 1].rstrip()}…"


def join_sentences(*parts: str) -> str:
    """Return the nonempty parts as sentences."""
    return " ".join(f"{part[:1].upper()}{part[1:].removesuffix('.')}." for part in parts if part)


def format_waiting(events: int | None) -> str:
    """Return how many events wait: 1 event waits, 205 events wait."""
    count = events or 0
    return f"{count:,} event{' waits' if count == 1 else 's wait'}"
