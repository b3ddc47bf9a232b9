"""Control loops, their recent actions, and overrides, in the snapshot."""

import math
from typing import Any

from common.stored_document import StoredDocument


class FirstReportFigures(StoredDocument, frozen=True, kw_only=True):
    """The estimated value of the advice of a loop at an attached plant.

    See `controllers.parallelism.advice_value.AdviceValue`. pause_seconds: how long the loop expects a change of tasks
    to stop the plant; the figures exclude that time.
    """

    measured_seconds: float
    task_hours: float
    advised_task_hours: float
    events: float
    waiting_event_seconds: float | None
    advised_waiting_event_seconds: float | None
    changes: int
    pause_seconds: float = 0.0


class LoopStatus(StoredDocument, frozen=True, kw_only=True):
    """A control loop.

    target: what it controls ({"queue", "node"}, {"application"}, …). mode: with an override of it applied.
    measured, setpoint, actuator: of its last decision, in the law's units; so are `terms`, those that pages show live.
    at: its last tick, which decided so or found that nothing had arrived since; entry: the number of the decision in
    the ledger; last_mode: the mode of that decision, None where unknown. overrides: the number in force.
    interval_seconds: between ticks. limited_by: what limited the last decision; blind_since: since when every decision
    lacks a valid measurement, and cause: why, where known. late_seconds: how late the last tick was, if so.
    """

    id: int = 0
    law: str = ""
    target: dict[str, str] = {}
    mode: str = "auto"
    measured: Any = None
    setpoint: Any = None
    actuator: int | float | None = None
    at: float | None = None
    reason: str | None = None
    verdict: str | None = None
    entry: int | None = None
    overrides: int = 0
    terms: dict[str, Any] = {}
    interval_seconds: float | None = None
    limited_by: str | None = None
    blind_since: float | None = None
    late_seconds: float | None = None
    cause: str | None = None
    last_mode: str | None = None

    def was_decided_in(self, *modes: str) -> bool:
        """Return whether the loop is in one of these modes and made its last decision in it.

        Only then is that decision in force.
        """
        return self.mode in modes and self.last_mode in (None, self.mode)


class RecentAction(StoredDocument, frozen=True, kw_only=True):
    """The last action of a law's loops: `did` in words; points: the number of points moved."""

    law: str
    entry: int
    at: float
    verdict: str
    did: str = ""
    points: int = 0


class OverrideStatus(StoredDocument, frozen=True, kw_only=True):
    """An override, a paused queue, or a drained worker host.

    An override is of a loop, of a law's or a queue's loops, or of a node; a pause is of `intake` or `consumption`, a
    drain of `work`. Times are seconds since 1970; expires_at None: no expiry; notice_at: when people are notified
    before it expires. instead_of: the value that it replaces.
    """

    id: int
    name: str
    value: Any = None
    scope: str = ""
    loop: str | None = None
    law: str | None = None
    queue: str | None = None
    node: str | None = None
    host: str | None = None
    instead_of: Any = None
    owner: str = ""
    reason: str = ""
    replaces: Any = None
    created_at: float | None = None
    expires_at: float | None = None
    notice_at: float | None = None

    @property
    def lasts_seconds(self) -> float:
        """Return the time from its start to its expiry, infinite if one is missing."""
        if self.expires_at is None or self.created_at is None:
            return math.inf
        return self.expires_at - self.created_at


class ManualChange(StoredDocument, frozen=True, kw_only=True):
    """A manual change that is no override of a loop.

    kind: tasks, criterion, ladder cap, drain, cordon …; of: what it is set on ("kind/name"). value: in words.
    owner: "" where only the audit log knows who. until: None for no expiry. Times are s since 1970.
    """

    kind: str
    of: str
    value: str = ""
    owner: str = ""
    reason: str = ""
    until: float | None = None
