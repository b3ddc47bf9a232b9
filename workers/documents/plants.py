"""Registered plants, who steers one, and the forecast of what comes, as the snapshot has them."""

from typing import Any

from queues.stored_document import StoredDocument
from workers.documents.consumer_groups import ConsumerGroup
from workers.documents.hosts import PoolWork


class PlantHolder(StoredDocument, frozen=True, kw_only=True, gc=False):
    """Who steers a plant's tasks through the control API; until: seconds since 1970, None: nobody
    knows.
    """

    holder: str | None = None
    until: float | None = None


class PlantSection(StoredDocument, frozen=True, kw_only=True):
    """More that a plant says of itself, as a table of its page: `rows` have a value a column, None for what
    is not known. about: a sentence beside the title; empty: what stands there without rows.
    """

    title: str
    about: str = ""
    columns: list[str] = []
    rows: list[list[str | float | None]] = []
    empty: str = ""


class SensorStatus(StoredDocument, frozen=True, kw_only=True):
    """A number that a plant's declaration names; None: not known, where an error says why. silent_seconds:
    since it was known last, or since it was first asked for.

    A value beside an error is what the source says and nothing can rely on: a sum without the parts that did
    not answer, or a negative count. It is shown with the error, and is unknown to rules, loops and history.
    """

    value: float | None = None
    silent_seconds: float = 0.0
    unit: str = ""
    title: str = ""
    error: str | None = None

    @property
    def known_value(self) -> float | None:
        """The value, where it can be relied on."""
        return self.value if self.error is None else None


class ProofStatus(StoredDocument, frozen=True, kw_only=True):
    """What shows that an order took effect: a sensor that must say as many tasks within so long. value: what
    it says now; None: not known, and so not shown.
    """

    sensor: str
    value: float | None = None
    within_seconds: float


class FoundPart(StoredDocument, frozen=True, kw_only=True):
    """A part of a plant that was inspected. kind: operator, source, pool, group, sensor …; tasks: now.
    fixed: why its tasks can't be set; None: they can, from minimum to maximum.
    """

    name: str
    kind: str = "operator"
    tasks: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    fixed: str | None = None


class FoundPlant(StoredDocument, frozen=True, kw_only=True):
    """What stands at an address. what: in one sentence. name: what it calls itself. said: more of it, a
    sentence each. needs: what it would need so that Weir can do (more) there, a sentence each. choices:
    option → what it could be there.
    """

    what: str
    name: str = ""
    said: list[str] = []
    parts: list[FoundPart] = []
    needs: list[str] = []
    choices: dict[str, list[str]] = {}


class OrderStatus(StoredDocument, frozen=True, kw_only=True):
    """What was last ordered of an operator, and what it has. at: when it was ordered, by a loop or a person.
    now: its tasks, since when it was observed to have them. state: pending, reached, missed or undone
    (`workers.plants.reached`). waiting_since: for what is pending or missed. undone_to: what something else
    set, where it was undone.
    """

    tasks: int
    at: float
    by: str
    now: int | None = None
    since: float | None = None
    state: str = "pending"
    waiting_since: float | None = None
    undone_to: int | None = None


class PoolSamples(PoolWork, frozen=True, kw_only=True):
    """What the pool of an operator completed while all of its tasks had work, of its present size. since:
    when this was first counted (s since 1970); of another time all numbers are anew.
    """

    since: float


class UnservedQueue(StoredDocument, frozen=True, kw_only=True):
    """A queue of a plant from which no worker takes: what waits in it, and for how long nobody has taken."""

    waiting: int
    seconds: float


class PlantStatus(StoredDocument, frozen=True, kw_only=True):
    """Another plant. state: seen, stale or unseen; error: what went wrong when it was observed
    last. tasks: that can be set. latency_seconds: of its slowest path. topology: as
    `controllers.parallelism.measured_topology` writes and checks it; None while it was never seen.
    sections: what else its adapter shows. orders: operator → what was ordered of it from here. groups: the
    groups of consumers that read its logs, by name. sensors: by name, the numbers that its declaration names.
    revisions: what is rolled out of each part. proofs: operator → what shows that an order took effect, where
    that is not the number of its tasks. set_to: operator → tasks that the plant itself aims at, where it says
    so beside those that are there. lives: operator → since when it is at work (s since 1970), where that is
    known: what was ordered earlier was ordered of another one. completions: operator → what its pool
    completed while it was full, where the plant says each completion. silent_seconds: since it was observed
    last, or first asked. missed_workers: worker → for how long it has not answered (s), though nothing was
    heard of its end.
    """

    kind: str = ""
    state: str = "unseen"
    age_seconds: float | None = None
    silent_seconds: float = 0.0
    error: str | None = None
    tasks: int | None = None
    in_per_second: float | None = None
    latency_seconds: float | None = None
    topology: dict[str, Any] | None = None
    steered_by: PlantHolder | None = None
    sections: list[PlantSection] = []
    groups: dict[str, ConsumerGroup] = {}
    sensors: dict[str, SensorStatus] = {}
    revisions: dict[str, str] = {}
    proofs: dict[str, ProofStatus] = {}
    set_to: dict[str, int] = {}
    lives: dict[str, float] = {}
    completions: dict[str, PoolSamples] = {}
    missed_workers: dict[str, float] = {}
    unserved_queues: dict[str, UnservedQueue] = {}
    orders: dict[str, OrderStatus] = {}

    @property
    def live_groups(self) -> dict[str, ConsumerGroup]:
        """Its groups while it is seen: how far behind they were when it was seen last is no figure of now."""
        return self.groups if self.state == "seen" else {}


class LoadForecast(StoredDocument, frozen=True, kw_only=True):
    """What will be offered to an application or a plant: means and deviations, events/s, one a window from
    `at` on; None with `refused` saying why. days: of the past that it rests on. trained_until: a
    day, of its training sets.
    """

    at: float
    window_seconds: float
    mean_per_second: list[float] | None = None
    deviation_per_second: list[float] | None = None
    days: float = 0.0
    trained_until: str | None = None
    refused: str | None = None
