"""The completions of a pool, and how many of its slots were busy on average.

Instantaneous readings miss short workers: workers of half a second that start on each full second, read a second apart,
seem never to be busy, or always. Their starts and ends give the true duration.
"""

import bisect
import math
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from queues import keys

if TYPE_CHECKING:
    import redis
    from redis.typing import EncodableT, FieldT


class BusyTime:
    """Mean busy slots from starts and ends; instants are from one monotonic clock.

    Late information counts once it is known: over time nothing is lost, and nothing counts twice.
    """

    def __init__(self, at_seconds: float) -> None:
        self._asked_at = at_seconds
        self._seconds = 0.0  # of all slots, since the last call
        self._counted_until: dict[int, float] = {}  # busy slots

    def begin(self, slot: int, at_seconds: float) -> None:
        self._counted_until[slot] = at_seconds

    def end(self, slot: int, at_seconds: float) -> None:
        if (since := self._counted_until.pop(slot, None)) is not None:
            self._seconds += at_seconds - since

    def compute_mean(self, until_seconds: float, slots: Collection[int]) -> float | None:
        """Return (busy time) / (time) since the last call, a number of slots; None if no time has passed.

        A slot that no longer exists reports no end.
        """
        passed = until_seconds - self._asked_at
        if passed <= 0:
            return None
        for slot, since in list(self._counted_until.items()):
            if slot not in slots:
                del self._counted_until[slot]
            elif since < until_seconds:
                self._seconds += until_seconds - since
                self._counted_until[slot] = until_seconds
        mean, self._seconds, self._asked_at = self._seconds / passed, 0.0, until_seconds
        return mean


BRIDGE_SECONDS = 0.25
ARRIVAL_SECONDS = 0.25  # how long a worker's note may be in transit
GROUP_SECONDS, MAX_GROUP_SECONDS, GROUP_COMPLETIONS = 0.125, 1.0, 10
RETAINED_SAMPLES = 64
MAX_PENDING = 20_000
WARM_UP_SECONDS = 1.0
# Time constants of the learned service times and of the mix of work.
LEARNING_SECONDS, MIX_SECONDS = 1_800.0, 5.0
MIN_LEARNED_SECONDS = 1e-3
NOTE_WEIGHT = 0.02  # of the newest value in the means of events per note and of notes per report
MAX_SHOWN_WORK = 8
DONE, ENDED, BEGAN = range(3)  # in the order in which a slot's notes of one instant happened


@dataclass(frozen=True, slots=True, order=True)
class WorkerNote:
    """A note of a worker in slot `slot` (its process): it started, completed this many events, or ended.

    work: the kind of the work: the queue, or the name of a task.
    """

    at_seconds: float
    slot: int
    kind: int
    events: int = 0
    work: str = ""


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """The completions since the last sample: the time, and the maximum number of events, if every slot reported now."""

    seconds: float = 0.0
    events: float = 0.0


class ServiceTimes:
    """Learned service times by kind of work, and the recent mix of work.

    The weight of an event is the service time of its kind of work divided by that of the reference, the kind that was
    learned first. If more processes slow all kinds of work equally, or if the mix changes, the weights therefore stay
    the same. `_scale` keeps the weights when the reference is no longer processed and another one replaces it.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._events: dict[str, float] = {}
        self._recent: dict[str, float] = {}
        self._reference, self._scale = "", 1.0

    def learn(self, work: str, events: int, seconds: float) -> float:
        """Learn the time that a slot took for some events, and return their weight as a number of events."""
        for totals, amount in ((self._seconds, seconds), (self._events, events), (self._recent, seconds)):
            totals[work] = totals.get(work, 0.0) + amount
        if self._reference not in self._seconds:
            self._reference = work
        own, reference = self._measure(work), self._measure(self._reference)
        return events * self._scale * (own / reference if own > 0 and reference > 0 else 1.0)

    def forget(self, passed_seconds: float) -> None:
        """Reduce the weight of what was learned before; time without measurements does not count."""
        for totals, memory_seconds in (
            (self._seconds, LEARNING_SECONDS),
            (self._events, LEARNING_SECONDS),
            (self._recent, MIX_SECONDS),
        ):
            left = math.exp(-passed_seconds / memory_seconds)
            for work in totals:
                totals[work] *= left
        gone = [work for work, seconds in self._seconds.items() if seconds < MIN_LEARNED_SECONDS]
        if self._reference in gone and len(gone) < len(self._seconds):
            new = max(self._seconds, key=self._seconds.__getitem__)
            self._scale *= self._measure(new) / self._measure(self._reference)
            self._reference = new
        for work in gone:
            del self._seconds[work], self._events[work]
            self._recent.pop(work, None)

    def compute_mix(self) -> dict[str, float]:
        """Return the shares of the recent time of the most frequent kinds of work."""
        total = sum(self._recent.values())
        shares = sorted(((seconds, work) for work, seconds in self._recent.items() if work), reverse=True)
        return {work: round(seconds / total, 3) for seconds, work in shares[:MAX_SHOWN_WORK]} if total > 0 else {}

    def _measure(self, work: str) -> float:
        return self._seconds[work] / self._events[work]


class Departures:
    """Departures: notes in, samples out. `size` is the pool's number of slots.

    A sample is the time per event. An event counts by its weight (`ServiceTimes`), so that a change of the mix of work
    does not change the measured throughput.
    """

    def __init__(self, size: int, at_seconds: float) -> None:
        self.seq, self.full_seconds = 0, 0.0
        self.recent: deque[float] = deque(maxlen=RETAINED_SAMPLES)
        self._size, self._since, self._at = size, at_seconds, at_seconds
        self._pending: list[WorkerNote] = []
        self._occupied: set[int] = set()
        self._known_until: dict[int, float] = {}  # of busy slots
        self._begins: dict[int, deque[float]] = defaultdict(deque)  # pending notes of each slot, in order
        self._service_times = ServiceTimes()
        self._worked_until: dict[int, float] = {}  # last note of each busy slot
        self._warm = False
        self._begin_group()
        self._enough_events: float | None = None  # until the first group has shown how many arrive
        self._notes_per_report, self._events_per_note = 1.0, 0.0
        self._open = OpenGroup()

    def resize(self, size: int, at_seconds: float) -> None:
        """Set the number of slots from now on: earlier measurements were of another configuration."""
        if size == self._size:
            return
        self._size, self._since, self._warm = size, at_seconds, False
        self.recent.clear()
        self._begin_group()

    def add(self, notes: Sequence[WorkerNote], known_until: float, slot: int) -> None:
        """Add notes of one slot, complete up to an instant."""
        for note in notes:
            bisect.insort(self._pending, note)
            if note.kind == BEGAN:
                self._begins[note.slot].append(note.at_seconds)
            if note.kind == ENDED:
                self._known_until.pop(slot, None)
        if completions := sum(note.kind == DONE for note in notes):
            self._notes_per_report += NOTE_WEIGHT * (completions - self._notes_per_report)
        if not any(note.kind == ENDED for note in notes):
            self._known_until[slot] = known_until

    def settle(self, now_seconds: float, slots: Collection[int], others: int = 0) -> None:
        """Advance to what is known for certain.

        `slots` are the existing processes, `others` the number of them that another task than a consumer occupies.
        """
        self._forget(slots)
        full_seconds_before = self.full_seconds
        horizon = now_seconds - BRIDGE_SECONDS - ARRIVAL_SECONDS
        if len(self._pending) < MAX_PENDING:  # A call that takes this long keeps no more of them.
            horizon = min([horizon, *self._known_until.values()])
        place = 0
        while place < len(self._pending) and self._pending[place].at_seconds <= horizon:
            note = self._pending[place]
            self._advance(note.at_seconds, others)
            self._take(note, others)
            if not self._warm and note.at_seconds >= self._since and self._is_full(others):
                self._since, self._warm = note.at_seconds + WARM_UP_SECONDS, True
            place += 1
        del self._pending[:place]
        self._advance(horizon, others)
        self._service_times.forget(self.full_seconds - full_seconds_before)
        self._open = self._measure_open_group(now_seconds - ARRIVAL_SECONDS, others)

    def to_json(self) -> dict[str, Any]:
        """Return, for the host's report, the samples of this size, numbered, and the full time so far (s)."""
        total = sum(self.recent)
        return {
            "seq": self.seq,
            "recent_seconds": [float(f"{departure:.5g}") for departure in self.recent],
            "full_seconds": round(self.full_seconds, 3),
            "per_second": round(len(self.recent) / total, 3) if total > 0 else None,
            "mix": self._service_times.compute_mix(),
            "open_seconds": round(self._open.seconds, 3),
            "open_events": round(self._open.events, 1),
        }

    def _measure_open_group(self, until_seconds: float, others: int) -> OpenGroup:
        """Return the group in progress, with notes that are not settled yet.

        A slot in a long call reports nothing, so that nothing after its last note is settled. Its next report counts as
        if it came now. The bound is therefore known while all slots are in calls that take far too long.
        """
        occupied, completions = set(self._occupied), 0
        since = max(self._at, self._since) if self._warm else None
        for note in self._pending:
            if note.kind == BEGAN:
                occupied.add(note.slot)
            elif note.kind == ENDED:
                occupied.discard(note.slot)
            else:
                completions += 1
            if since is None and note.at_seconds >= self._since and len(occupied) >= self._size - others:
                since = note.at_seconds + WARM_UP_SECONDS
        if since is None or not self._events_per_note or len(occupied) < self._size - others:
            return OpenGroup()
        unreported = max(self._size * self._notes_per_report, GROUP_COMPLETIONS)
        seconds = self._group_seconds + max(0.0, until_seconds - since)
        return OpenGroup(seconds, self._group_events + (completions + unreported) * self._events_per_note)

    def _forget(self, slots: Collection[int]) -> None:
        """Forget slots whose process is gone (killed in progress), so that they don't delay anything."""
        gone = (self._known_until.keys() | self._begins.keys() | self._occupied) - set(slots)
        if not gone:
            return
        self._occupied -= gone
        self._pending = [note for note in self._pending if note.slot not in gone]
        for slot in gone:
            self._known_until.pop(slot, None)
            self._begins.pop(slot, None)
            self._worked_until.pop(slot, None)

    def _is_full(self, others: int) -> bool:
        return len(self._occupied) >= self._size - others > 0

    def _advance(self, at_seconds: float, others: int) -> None:
        passed = at_seconds - max(self._at, self._since)
        if passed > 0 and self._is_full(others):
            self._group_seconds += passed
            self.full_seconds += passed
        self._at = max(self._at, at_seconds)

    def _take(self, note: WorkerNote, others: int) -> None:
        if note.kind == BEGAN:
            self._begins[note.slot].popleft()
            self._occupied.add(note.slot)
            self._worked_until[note.slot] = note.at_seconds
        elif note.kind == ENDED and not self._begins_again(note):
            self._occupied.discard(note.slot)
        elif note.kind == DONE and note.slot in self._worked_until and note.events > 0:
            worked_seconds = note.at_seconds - self._worked_until[note.slot]
            self._worked_until[note.slot] = note.at_seconds
            if note.at_seconds > self._since and self._is_full(others):
                self._record_completions(self._service_times.learn(note.work, note.events, worked_seconds))

    def _begins_again(self, ended: WorkerNote) -> bool:
        begins = self._begins[ended.slot]
        return bool(begins) and begins[0] <= ended.at_seconds + BRIDGE_SECONDS

    def _record_completions(self, events: float) -> None:
        before = self._events_per_note or events
        self._events_per_note = before + NOTE_WEIGHT * (events - before)
        self._group_events += events
        self._group_completions += 1
        if not self._is_enough():
            return
        sample = self._group_seconds / self._group_events
        self.recent.append(sample)
        self.seq += 1
        self._enough_events = max(1.0, round(GROUP_SECONDS / sample)) if sample > 0 else 1.0
        self._begin_group()

    def _begin_group(self) -> None:
        self._group_seconds, self._group_events, self._group_completions = 0.0, 0.0, 0

    def _is_enough(self) -> bool:
        if self._group_completions < GROUP_COMPLETIONS and self._group_seconds < MAX_GROUP_SECONDS:
            return False
        if self._group_completions % self._size:
            return False
        if self._enough_events is None:
            return self._group_seconds >= GROUP_SECONDS
        return self._group_events >= self._enough_events and self._group_seconds > 0


MAX_ENTRIES = 4_096
RETAINED_SECONDS = 3_600
Completion = tuple[float, int]  # instant, events


@dataclass(frozen=True, slots=True)
class CompletionReporter:
    """A worker's reports to its host; without a host (no pool runs it) they are dropped. work: its queue."""

    host: str
    slot: int
    monotonic: Callable[[], float] = time.monotonic
    work: str = ""

    @classmethod
    def open(cls, host: str | None, work: str) -> "CompletionReporter":
        """Return the reporter of the calling process."""
        return cls(host or "", os.getpid(), work=work)

    def record_start(self, pipe: "redis.client.Pipeline") -> None:
        """Report the worker's start, in its pipeline."""
        self._report(pipe, {"b": self.monotonic()})
        if self.host:
            pipe.expire(keys.DONE.build(self.host), RETAINED_SECONDS)

    def record_completions(self, client: "redis.Redis", done: Sequence[Completion]) -> None:
        """Report after each round of blocks, so that the host need not wait for the end of a long worker."""
        if done:
            self._report(client, {"d": orjson.dumps(done), "u": self.monotonic(), "w": self.work})

    def record_end(self, pipe: "redis.client.Pipeline") -> None:
        """Report the worker's end, in its pipeline."""
        self._report(pipe, {"e": self.monotonic()})

    def _report(self, client: "redis.Redis", fields: "dict[FieldT, EncodableT]") -> None:
        if self.host:
            entry = {"p": self.slot, **fields}
            client.xadd(keys.DONE.build(self.host), entry, maxlen=MAX_ENTRIES, approximate=True)


def add_busy_time(busy: BusyTime, fields: Mapping[bytes, bytes]) -> None:
    """Add a stream's entry to the busy time: a start, or an end."""
    if b"b" in fields:
        busy.begin(int(fields[b"p"]), float(fields[b"b"]))
    elif b"e" in fields:
        busy.end(int(fields[b"p"]), float(fields[b"e"]))


def add_worker_note(departures: Departures, fields: Mapping[bytes, bytes]) -> None:
    """Add a stream's entry to the departures."""
    slot = int(fields[b"p"])
    if b"b" in fields:
        at = float(fields[b"b"])
        departures.add([WorkerNote(at, slot, BEGAN)], at, slot)
    elif b"e" in fields:
        at = float(fields[b"e"])
        departures.add([WorkerNote(at, slot, ENDED)], at, slot)
    else:
        work = fields.get(b"w", b"").decode()  # old versions don't report it
        done = [WorkerNote(float(at), slot, DONE, int(events), work) for at, events in orjson.loads(fields[b"d"])]
        departures.add(done, float(fields[b"u"]), slot)
