"""Registered plants, their controllers, and the forecasts of their arrivals, in the snapshot."""

from typing import Any

from common.stored_document import StoredDocument
from workers.documents.consumer_groups import ConsumerGroup
from workers.documents.hosts import PoolWork


class PlantHolder(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The controller that sets a plant's tasks through the control API.

    until: seconds since 1970, None: unknown.
    """

    holder: str | None = None
    until: float | None = None


class PlantSection(StoredDocument, frozen=True, kw_only=True):
    """Additional information of a plant, as a table of its page.

    `rows` have one value per column, None where unknown. about: a sentence beside the title; empty: the text without
    rows.
    """

    title: str
    about: str = ""
    columns: list[str] = []
    rows: list[list[str | float | None]] = []
    empty: str = ""


class SensorStatus(StoredDocument, frozen=True, kw_only=True):
    """A number that a plant's declaration names; None: unknown, in which case an error may say why.

    silent_seconds: since it was last known, or since the first request. A value with an error is an unreliable report
    of the source: a sum without the parts that did not answer, or a negative count. It is displayed with the error, and
    is unknown to rules, loops, and history.
    """

    value: float | None = None
    silent_seconds: float = 0.0
    unit: str = ""
    title: str = ""
    error: str | None = None

    @property
    def known_value(self) -> float | None:
        """Return the value where it is reliable."""
        return self.value if self.error is None else None


class ProofStatus(StoredDocument, frozen=True, kw_only=True):
    """Evidence that an order took effect: a sensor that must show as many tasks within a time limit.

    value: its present value; None: unknown and therefore not shown.
    """

    sensor: str
    value: float | None = None
    within_seconds: float


class FoundPart(StoredDocument, frozen=True, kw_only=True):
    """A part of an inspected plant.

    kind: operator, source, pool, group, sensor …; tasks: now. fixed: why its tasks cannot be set; None: they can, from
    minimum to maximum.
    """

    name: str
    kind: str = "operator"
    tasks: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    fixed: str | None = None


class FoundPlant(StoredDocument, frozen=True, kw_only=True):
    """The system found at an address.

    what: in one sentence. name: its own name. said: details, a sentence each. needs: requirements for Weir to do (more)
    there, a sentence each. choices: option → possible values there.
    """

    what: str
    name: str = ""
    said: list[str] = []
    parts: list[FoundPart] = []
    needs: list[str] = []
    choices: dict[str, list[str]] = {}


class OrderStatus(StoredDocument, frozen=True, kw_only=True):
    """The last order of an operator's tasks, and its outcome.

    at: when a loop or a person ordered it. now: its tasks, since when it was observed to have them. state: pending,
    reached, missed, or undone (`workers.plants.reached`). waiting_since: for pending and missed orders. undone_to: the
    value that another controller set, where it was undone.
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
    """Completions of an operator's pool at its present size while all of its tasks were busy.

    since: when this count started (s since 1970); with another time, all numbers are new.
    """

    since: float


class UnservedQueue(StoredDocument, frozen=True, kw_only=True):
    """A queue of a plant without consumers: its backlog, and for how long it has had none."""

    waiting: int
    seconds: float


class PlantStatus(StoredDocument, frozen=True, kw_only=True):
    """An attached plant.

    state: seen, stale, or unseen; error: the last failure to observe it. tasks: whether they can be set.
    latency_seconds: of its slowest path. topology: as `controllers.parallelism.measured_topology` writes and validates
    it; None while it was never seen. sections: additional tables of its adapter. orders: operator → the last order from
    here. groups: the consumer groups that read its logs, by name. sensors: the numbers that its declaration names, by
    name. revisions: the deployed revision of each part. proofs: operator → evidence that an order took effect, where
    that is not the number of its tasks. set_to: operator → the plant's own target of tasks, where it reports one
    besides the existing tasks. lives: operator → since when it runs (s since 1970), where known: earlier orders were
    for another one. completions: operator → completions of its pool while it was full, where the plant reports each.
    silent_seconds: since the last observation, or the first request. missed_workers: worker → for how long it has not
    answered (s) without reporting its end.
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
        """Return its groups while it is seen: old lags are not current figures."""
        return self.groups if self.state == "seen" else {}


class LoadForecast(StoredDocument, frozen=True, kw_only=True):
    """The forecast load of an application or a plant.

    Means and deviations are in events/s, one per window from `at` on; None with `refused` saying why. days: days of the
    past that it is based on. trained_until: the last day of its training sets.
    """

    at: float
    window_seconds: float
    mean_per_second: list[float] | None = None
    deviation_per_second: list[float] | None = None
    days: float = 0.0
    trained_until: str | None = None
    refused: str | None = None
