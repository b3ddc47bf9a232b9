"""Control loops, their recent actions, and overrides, in the snapshot."""

import math
from typing import Annotated, Any

from common.stored_document import Instant, Points, Seconds, StoredDocument, describe

Verdict = Annotated[str, describe(values=("checking", "effective", "ineffective", "harmful", "no action"))]
Mode = Annotated[str, describe(values=("auto", "advise", "hold", "manual"))]


class FirstReportFigures(StoredDocument, frozen=True, kw_only=True):
    """The estimated value of the advice of a loop at an attached plant.

    See `controllers.parallelism.advice_value.AdviceValue`.
    """

    measured_seconds: Seconds
    task_hours: float
    advised_task_hours: float
    events: Annotated[float, describe("Number of events that arrived at an operator.")]
    waiting_event_seconds: Annotated[float | None, describe("null: not measured.")]
    advised_waiting_event_seconds: float | None
    changes: Annotated[int, describe("Number of advised changes to the number of tasks.")]
    pause_seconds: Annotated[
        Seconds, describe("Pause of the plant at a change, s; not included in the waiting time.")
    ] = 0.0


class AdviceEffect(StoredDocument, frozen=True, kw_only=True):
    """The effect that a loop's advice would have had on a day, estimated from its ledger.

    See `controllers.parallelism.advice_value.AdviceValue`.
    """

    unit: Annotated[str, describe("Unit of what the loop sets.", values=("worker", "task", "node", "level"))]
    measured_seconds: Seconds
    unit_hours: float
    advised_unit_hours: float
    least: Annotated[int, describe("Minimum advised number of units.")]
    most: Annotated[int, describe("Maximum advised number of units.")]
    changes: Annotated[int, describe("Number of advised changes.")]
    events: Annotated[float, describe("Number of events that arrived at an operator.")] = 0.0
    waiting_event_seconds: Annotated[float | None, describe("null: not measured.")] = None
    advised_waiting_event_seconds: float | None = None
    saved_cost: Annotated[float | None, describe("Saved cost at the plant's hourly price; null: no price.")] = None


class LoopStatus(StoredDocument, frozen=True, kw_only=True):
    """A loop and its last decision."""

    id: int = 0
    law: str = ""
    target: Annotated[dict[str, str], describe('What it controls, such as {"queue", "node"}.')] = {}
    mode: Annotated[Mode, describe("The mode, with an override of it applied.")] = "auto"
    measured: Annotated[Any, describe("In the law's units, as are the setpoint and the actuator.", recorded=True)] = (
        None
    )
    setpoint: Annotated[Any, describe(recorded=True)] = None
    actuator: Annotated[int | float | None, describe(recorded=True)] = None
    at: Annotated[Instant | None, describe("Last tick, which decided so or found no new data.")] = None
    reason: str | None = None
    verdict: Verdict | None = None
    entry: Annotated[int | None, describe("The decision's number in the ledger.")] = None
    overrides: Annotated[int, describe("Overrides in force", metric="gauge")] = 0
    terms: Annotated[dict[str, Any], describe("Terms of the decision that pages show live.")] = {}
    interval_seconds: Annotated[Seconds | None, describe("Seconds between decisions", metric="gauge")] = None
    limited_by: Annotated[str | None, describe("What limited the last decision.")] = None
    blind_since: Annotated[Instant | None, describe("Start of the time without a valid measurement.")] = None
    late_seconds: Annotated[Seconds | None, describe("Delay of the last tick", metric="gauge")] = None
    cause: Annotated[str | None, describe("Why the loop has no valid measurement, if known.")] = None
    last_mode: Annotated[
        Mode | None, describe("Mode of the last decision. The decision applies only in this mode.")
    ] = None
    relief: Annotated[
        str | None, describe("The last decision if it adds capacity, applied or not, such as: use n3.")
    ] = None
    cap: Annotated[str | None, describe("Highest level that the remedy ladder of a queue may reach.")] = None

    def was_decided_in(self, *modes: str) -> bool:
        """Return whether the loop is in one of these modes and made its last decision in it, which is then in force."""
        return self.mode in modes and self.last_mode in (None, self.mode)


class RecentAction(StoredDocument, frozen=True, kw_only=True):
    """The last action of a law's loops."""

    law: str
    entry: int
    at: Instant
    verdict: Verdict
    did: Annotated[str, describe("The action in words.")] = ""
    points: Annotated[Points, describe("Number of points moved.")] = 0


class ReplacedOverride(StoredDocument, frozen=True, kw_only=True):
    """An override that another one replaces."""

    id: int
    scope: str = ""
    value: Any = None
    owner: str = ""
    reason: str = ""
    ended: Annotated[bool, describe("Whether the new override ended this one.")] = False


class OverrideFields(StoredDocument, frozen=True, kw_only=True):
    """An override, a paused queue, or a drained worker host.

    An override is of a loop, of a law's or a queue's loops, or of a node; a pause is of `intake` or `consumption`, a
    drain of `work`.
    """

    id: int
    name: str
    value: Any = None
    scope: str = ""
    loop: str | None = None
    law: str | None = None
    queue: str | None = None
    node: str | None = None
    host: Annotated[str | None, describe("The drained worker host.")] = None
    instead_of: Annotated[Any, describe("The value that the override replaces.")] = None
    owner: str = ""
    reason: str = ""
    replaces: list[ReplacedOverride] | None = None
    notice_at: Annotated[Instant | None, describe("When its owner is notified of its expiry.")] = None


class OverrideStatus(OverrideFields, frozen=True, kw_only=True):
    """An override in the snapshot."""

    created_at: Instant | None = None
    expires_at: Annotated[Instant | None, describe("Unix time; null: no expiry.")] = None

    @property
    def lasts_seconds(self) -> float:
        """Return the time from its start to its expiry, infinite if one is missing."""
        if self.expires_at is None or self.created_at is None:
            return math.inf
        return self.expires_at - self.created_at


class ManualChange(StoredDocument, frozen=True, kw_only=True):
    """A change that people have in force (`workers.snapshot.manual_changes`)."""

    key: Annotated[str, describe("The key that ends the change; empty: a change of an earlier version.")] = ""
    kind: Annotated[str, describe("Such as override, hold, pause, drain, cap, tasks, or silence.")]
    of: Annotated[str, describe('The changed subject, "kind/name".')]
    title: Annotated[str, describe("The changed subject in words.")] = ""
    was: Annotated[str, describe("The value before, in words.")] = ""
    value: Annotated[str, describe("The value in force, in words.")] = ""
    effect: Annotated[str, describe("The current effect of the change.")] = ""
    warning: Annotated[str, describe("The harm if the change ended now; empty: no harm is known.")] = ""
    owner: Annotated[str, describe("Empty: only the audit log knows.")] = ""
    reason: str = ""
    since: Annotated[Instant | None, describe("null: unknown.")] = None
    until: Annotated[Instant | None, describe("null: until it is ended.")] = None
    remind_at: Annotated[Instant | None, describe("When an alert reminds people of a change without an end.")] = None
