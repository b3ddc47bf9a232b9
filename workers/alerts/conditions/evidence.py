"""The evidence that conditions read: the snapshot, and the records of the database and the control server."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workers.documents.snapshot import NOTHING_SEEN, Snapshot

STALE = "stale measurement"


@dataclass(frozen=True, slots=True)
class LedgerTick:
    """One ledger entry, with the fields that conditions read."""

    id: int
    at: float
    acted: bool
    value: float | None
    limited_by: str | None
    verdict: str


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """A loop and its ticks for as long as a rule looks back, oldest first.

    `blind_since`: the time of the first of the ticks that were held on a stale measurement up to now, if it
    is further back. `cause`: the cause of its present invalid measurement, if known (`workers.control.tick`).
    `is_late`: whether the tick that found no measurement was late.
    """

    id: int
    name: str
    law: str
    target: Mapping[str, str]
    interval_seconds: float
    swing: float
    ticked_at: float | None
    held_since: float | None = None
    mode: str = "auto"
    ticks: Sequence[LedgerTick] = ()
    blind_since: float | None = None
    cause: str | None = None
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """Something that failed: a plan, or a run of a task."""

    id: int
    name: str
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class NewFailures:
    """A group of failures of an attached plant's tasks that is new: of one kind of task, with one cause."""

    plant: str
    task: str
    error: str
    first_seen: float
    count: int


@dataclass(frozen=True, slots=True)
class FailingTask:
    """A group of failures of an attached plant's tasks that was seen recently. error: its exception."""

    plant: str
    task: str
    error: str
    last_seen: float


@dataclass(frozen=True, slots=True)
class FailingReceiver:
    """A receiver that messages do not reach: maximum tries of a waiting one, and how many were given up."""

    receiver: str
    tries: int
    given_up: int
    error: str


@dataclass(frozen=True, slots=True)
class AuditFacts:
    """The findings of the last check of the audit, and its age in seconds.

    `texts` are the first of `findings`. Without a check, the age counts since the watch started.
    """

    age_seconds: float
    findings: int = 0
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of one instant.

    - `snapshot`: None if there is no fresh one.
    - `silent_seconds`: since the observer published.
    - `unheard`: for how long nodes have been expected that have not reported since the watch started.
    - `started_seconds`: since the watch started on a plant that was not observed recently, which is starting,
      too.
    - `load_per_core`: the load average of the last minute on this host; above 1, processes wait for a core.
    - `published_to`: the queues of each producer when it published last.
    """

    now: float
    snapshot: Snapshot | None = None
    silent_seconds: float | None = None
    started_seconds: float = math.inf
    loops: Sequence[LoopFacts] = ()
    producers: Mapping[str, float] = field(default_factory=dict)
    published_to: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unheard: Mapping[str, float] = field(default_factory=dict)
    throttled: Sequence[str] = ()
    plans: Sequence[FailureRecord] = ()
    runs: Sequence[FailureRecord] = ()
    new_failures: Sequence[NewFailures] = ()
    failing_tasks: Sequence[FailingTask] = ()
    failing: Sequence[FailingReceiver] = ()
    audit: AuditFacts | None = None
    load_per_core: float | None = None

    @property
    def plant(self) -> Snapshot:
        """Return the snapshot; an empty one while there is no fresh one."""
        return self.snapshot or NOTHING_SEEN
