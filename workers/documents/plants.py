"""Registered plants, their controllers, and the forecasts of their arrivals, in the snapshot."""

from typing import Annotated, Any

from common.stored_document import Instant, PerSecond, Seconds, StoredDocument, describe
from workers.documents.consumer_groups import ConsumerGroup
from workers.documents.hosts import PoolWork


class PlantHolder(StoredDocument, frozen=True, kw_only=True, gc=False):
    """The controller that sets a plant's tasks through the control API."""

    holder: str | None = None
    until: Annotated[Instant | None, describe("null: unknown.")] = None
    since: Annotated[Instant | None, describe("null: unknown.")] = None
    reason: str = ""
    before: Annotated[dict[str, int], describe("Tasks before the change, by operator.")] = {}
    after: Annotated[dict[str, int], describe("Tasks that the holder has set, by operator.")] = {}


class PlantSection(StoredDocument, frozen=True, kw_only=True):
    """Additional data of a plant, as a table of its page."""

    title: str
    about: Annotated[str, describe("A sentence beside the title.")] = ""
    columns: list[str] = []
    rows: Annotated[list[list[str | float | None]], describe("One value per column; null: unknown.")] = []
    empty: Annotated[str, describe("Text to show if there are no rows.")] = ""


class SensorStatus(StoredDocument, frozen=True, kw_only=True):
    """A number that a plant's declaration names.

    A value with an error is an unreliable report of the source: a sum without the parts that did not answer, or a
    negative count. It is displayed with the error, and is unknown to rules, loops, and history.
    """

    value: Annotated[float | None, describe("null: unknown. Unreliable if there is an error.", recorded=True)] = None
    silent_seconds: Annotated[Seconds, describe("Time since the last known value or the first request, s.")] = 0.0
    unit: str = ""
    title: str = ""
    error: str | None = None

    @property
    def known_value(self) -> float | None:
        """Return the value where it is reliable."""
        return self.value if self.error is None else None


class ProofStatus(StoredDocument, frozen=True, kw_only=True):
    """Evidence that an order took effect: a sensor that must show as many tasks within a time limit."""

    sensor: str
    value: Annotated[float | None, describe("Current value of the sensor; null: unknown.")] = None
    within_seconds: Annotated[Seconds, describe("Time within which the sensor must show the number, s.")]


class FoundPart(StoredDocument, frozen=True, kw_only=True):
    """A part of an inspected plant, whose tasks can be set from minimum to maximum."""

    name: str
    kind: Annotated[str, describe("Such as operator, source, pool, group, or sensor.")] = "operator"
    tasks: Annotated[int | None, describe("Current number of tasks.")] = None
    minimum: int | None = None
    maximum: int | None = None
    fixed: Annotated[str | None, describe("Why the number of tasks can't be set; null: it can be set.")] = None


class FoundPlant(StoredDocument, frozen=True, kw_only=True):
    """The system found at an address."""

    what: Annotated[str, describe("The system, in one sentence.")]
    name: Annotated[str, describe("The name that the system reports; empty: none.")] = ""
    said: Annotated[list[str], describe("Details, a sentence each.")] = []
    parts: list[FoundPart] = []
    needs: Annotated[list[str], describe("Unmet requirements for Weir to observe or control more of the plant.")] = []
    choices: Annotated[dict[str, list[str]], describe("Possible values of each option.")] = {}


class OrderStatus(StoredDocument, frozen=True, kw_only=True):
    """The last order of an operator's tasks, and its outcome (`workers.plants.reached`)."""

    tasks: Annotated[int, describe("Requested number of tasks.")]
    at: Annotated[Instant, describe("Time of the request.")]
    by: Annotated[str, describe("The loop or user that made the request.")]
    now: Annotated[int | None, describe("Current number of tasks.")] = None
    since: Annotated[Instant | None, describe("When the current number of tasks was first observed.")] = None
    state: Annotated[
        str,
        describe(
            "missed: not reached in time; undone: changed by another controller. Loops hold in both states.",
            values=("pending", "reached", "missed", "undone"),
        ),
    ] = "pending"
    waiting_since: Annotated[Instant | None, describe("For pending and missed orders.")] = None
    undone_to: Annotated[int | None, describe("The number that another controller set.")] = None


class PoolSamples(PoolWork, frozen=True, kw_only=True):
    """Completions of an operator's pool at its present size while all of its tasks were busy."""

    since: Annotated[Instant, describe("Start of the count; with another time, all numbers are new.")]


class UnservedQueue(StoredDocument, frozen=True, kw_only=True):
    """A queue of a plant without consumers."""

    waiting: Annotated[int, describe("Number of waiting tasks.")]
    seconds: Annotated[Seconds, describe("Time without a consumer, s.")]


class SetValue(StoredDocument, frozen=True, kw_only=True):
    """A value that Weir has set at a plant, and what becomes of it if Weir vanishes now."""

    item: Annotated[str, describe("What was changed, such as queue celery.")]
    value: Annotated[str, describe("Current value.")]
    afterwards: Annotated[str, describe("Value after Weir has vanished.")]
    by: Annotated[str, describe("User, loop, or installation that set it; empty: the last task request names it.")] = ""
    since: Instant | None = None
    within_seconds: Annotated[Seconds | None, describe("Time until the former value is back, s; null: it stays.")] = (
        None
    )
    restored_by: Annotated[
        str,
        describe(
            "What restores it: guard, broker, or system (its own expiry).", values=("", "guard", "broker", "system")
        ),
    ] = ""
    stays: Annotated[str, describe("Why it stays, and what that means; empty: it does not stay.")] = ""
    is_harmless: Annotated[bool, describe("Whether it is harmless that it stays.")] = False
    is_hold: Annotated[bool, describe("Whether the plant's own controllers are held.")] = False


class GuardStatus(StoredDocument, frozen=True, kw_only=True):
    """The guard of a system that needs one."""

    alive: Annotated[bool | None, describe("Whether it sends heartbeats; null: unknown.")] = None
    error: Annotated[str, describe("Why leases can't be written or the guard can't be read; empty: no failure.")] = ""


class PlantStatus(StoredDocument, frozen=True, kw_only=True):
    """An attached plant; most views omit its topology."""

    kind: str = ""
    state: Annotated[str, describe("seen, stale, or unseen.")] = "unseen"
    age_seconds: Seconds | None = None
    silent_seconds: Annotated[Seconds, describe("Time since the last observation, or since the first request, s.")] = (
        0.0
    )
    error: Annotated[str | None, describe("The last failure to observe it.")] = None
    tasks: Annotated[int | None, describe("Number of tasks.", recorded=True)] = None
    in_per_second: Annotated[PerSecond | None, describe(recorded=True)] = None
    latency_seconds: Annotated[Seconds | None, describe("Latency of the slowest path, s.", recorded=True)] = None
    topology: Annotated[
        dict[str, Any] | None,
        describe("Operators, links, and measurements, as GET gettopology returns them; null: never observed."),
    ] = None
    steered_by: PlantHolder | None = None
    sections: Annotated[list[PlantSection], describe("Additional tables of its adapter.")] = []
    groups: Annotated[dict[str, ConsumerGroup], describe("Consumer groups that read its logs, by name.")] = {}
    sensors: Annotated[dict[str, SensorStatus], describe("Numbers that its declaration names, by name.")] = {}
    revisions: Annotated[dict[str, str], describe("Deployed revision of each part.")] = {}
    proofs: Annotated[dict[str, ProofStatus], describe("Evidence other than the number of tasks, by operator.")] = {}
    set_to: Annotated[dict[str, int], describe("The plant's own target number of tasks, by operator.")] = {}
    # Earlier orders were for another operator of the same name.
    lives: Annotated[dict[str, float], describe("Unix time at which each operator started, where known.")] = {}
    completions: Annotated[dict[str, PoolSamples], describe("Completions of each operator's pool.")] = {}
    missed_workers: Annotated[
        dict[str, float], describe("Time since each worker last responded, s, without reporting its end.")
    ] = {}
    unserved_queues: dict[str, UnservedQueue] = {}
    queue_names: Annotated[list[str], describe("Queues at its broker that Weir knows.")] = []
    task_names: Annotated[list[str], describe("Tasks that its workers have registered, at most 500.")] = []
    orders: Annotated[dict[str, OrderStatus], describe("The last task request of Weir for each operator.")] = {}
    set_values: Annotated[list[SetValue], describe("Values that Weir has set here.")] = []
    guard: Annotated[GuardStatus | None, describe("null: this system needs no guard.")] = None

    @property
    def live_groups(self) -> dict[str, ConsumerGroup]:
        """Return its groups while it is seen: old lags are not current figures."""
        return self.groups if self.state == "seen" else {}


class LoadForecast(StoredDocument, frozen=True, kw_only=True):
    """The forecast load of a queue, an application, or a plant."""

    at: Annotated[Instant, describe("Start of the first window.")]
    window_seconds: Seconds
    mean_per_second: Annotated[list[PerSecond] | None, describe("One value per window.")] = None
    deviation_per_second: Annotated[list[PerSecond] | None, describe("One value per window.")] = None
    days: Annotated[float, describe("Length of the past data, days.")] = 0.0
    trained_until: Annotated[str | None, describe("The last day of its training sets.")] = None
    refused: Annotated[str | None, describe("Why there is no forecast.")] = None
