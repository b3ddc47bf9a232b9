"""Control loops, what they did lately and what people put in their place, as the snapshot has them."""

import math
from typing import Any

from queues.stored_document import StoredDocument


class FirstReportFigures(StoredDocument, frozen=True, kw_only=True):
    """What the advice of a loop at another's plant would have been worth
    (`controllers.parallelism.advice_value.AdviceValue`). pause_seconds: for which the loop takes a change of
    tasks to stop the plant; no waiting for that is in the figures.
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
    """target: what it steers ({"queue", "node"}, {"application"}, …). mode: with an override of it
    in place. measured, setpoint, actuator: of its last decision, in the law's units; so are `terms`, those
    that pages follow. at: of its last tick, at which it decided so, or found that nothing has come since;
    entry: the number of the decision in the ledger; last_mode: the mode in which it was taken, None where
    that is not known. overrides: how many are in force. interval_seconds: between ticks. limited_by: what
    limited the last; blind_since: since when each was for want of a valid measurement, and cause: why, where
    that is known. late_seconds: how much later than due the last tick came, if so.
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
        """Whether it is in one of these modes, and was at its last decision: only then is that in force."""
        return self.mode in modes and self.last_mode in (None, self.mode)


class RecentAction(StoredDocument, frozen=True, kw_only=True):
    """What the loops of a law did last: `did` in words; points: that it moved."""

    law: str
    entry: int
    at: float
    verdict: str
    did: str = ""
    points: int = 0


class OverrideStatus(StoredDocument, frozen=True, kw_only=True):
    """A value in place of a loop's, a law's, a queue's loops' or a node's own; or a queue that is
    paused (`intake`, `consumption`), or a worker host that is drained (`work`). Times are seconds
    since 1970; expires_at None: it has no end; notice_at: when people are notified of its end.
    instead_of: the value it replaces.
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
        """From its beginning to its end; without one of them: for ever."""
        if self.expires_at is None or self.created_at is None:
            return math.inf
        return self.expires_at - self.created_at


class HandStatus(StoredDocument, frozen=True, kw_only=True):
    """What a person set that stands in for a loop or a part of the plant, and is no override of a loop.

    kind: tasks, criterion, ladder cap, drain, cordon …; of: what it is set on ("kind/name"). value: in
    words. owner: "" where only the audit says who. until: None where it has no end. Times are s since 1970.
    """

    kind: str
    of: str
    value: str = ""
    owner: str = ""
    reason: str = ""
    until: float | None = None
