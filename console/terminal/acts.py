"""Actions at a terminal: each one states its effect, asks for a reason, and makes one call."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from console.display.formats import format_value
from queues import pausing
from workers.documents.alerts import AlertStatus
from workers.documents.loops import LoopStatus, OverrideStatus

MINUTES = 30.0


@dataclass(frozen=True)
class Act:
    """An action that a person can start.

    title: the button's text. effect: what will happen. minutes: default duration; None: it has no end.
    reason: the field that takes it.
    """

    title: str
    effect: str
    path: str
    body: Mapping[str, Any] = field(default_factory=dict)
    minutes: float | None = None
    reason: str = "reason"

    def document(self, reason: str, minutes: float | None) -> dict[str, Any]:
        """Return the body of its call."""
        lasting = {"minutes": minutes} if self.minutes is not None else {}
        return {**self.body, **lasting, self.reason: reason}


def hold(name: str, loop: LoopStatus) -> Act:
    """Return the action that holds a loop for a time."""
    stays = "the values that it set stay in force"
    if loop.actuator is not None:
        stays = f"its actuator stays at {format_value(loop.actuator)}"
    return Act(
        f"Hold {name}",
        f"The loop stops acting: {stays}. It resumes automatically after the time below, in its "
        f"current mode ({loop.mode}).",
        f"/api/v1/loops/{loop.id}/mode",
        {"mode": "hold"},
        minutes=MINUTES,
    )


PAUSES = {
    pausing.INTAKE: "Publishers are rejected; waiting events are still processed. "
    "No acknowledged event is lost. The pause ends automatically after the time below.",
    pausing.CONSUMPTION: "Workers claim no more events: claimed events are finished, and the rest wait. "
    "The pause ends automatically after the time below.",
}


def pause(queue: str, part: str) -> Act:
    """Return the action that pauses a queue's intake or consumption for a time."""
    return Act(
        f"Pause {part} of {queue}",
        PAUSES[part],
        f"/api/v1/queues/{quote(queue, safe='')}/pause",
        {"part": part},
        minutes=MINUTES,
    )


def acknowledge(alert: AlertStatus) -> Act:
    """Return the action that acknowledges an alert."""
    return Act(
        f"Acknowledge incident {alert.id}",
        f"{alert.title}: no further notifications are sent until the acknowledgment expires.",
        f"/api/v1/alerts/{alert.id}/acknowledge",
        reason="note",
    )


def end(override: OverrideStatus) -> Act:
    """Return the action that ends a manual change now."""
    back = "the value without the override"
    if override.instead_of is not None:
        back = format_value(override.instead_of)
    return Act(
        f"End {override.name} of {override.scope}",
        f"{override.owner} set {override.name} to {format_value(override.value)} ({override.reason}). "
        f"The override ends now; {override.name} returns to {back}.",
        f"/api/v1/overrides/{override.id}/end",
    )
