"""The findings and changes of one check, until they are written."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from workers.alerts.lifecycle.episodes import convert_to_datetime
from workers.alerts.lifecycle.models import Alert, AlertEvent, Delivery


@dataclass
class AlertCheck:
    """The state of a check.

    `alerts`: those that are open, or ended just now; `lately`: by fingerprint, those that ended so recently
    that what fires now is the same alert.
    """

    now: float
    elapsed_seconds: float
    lately: dict[str, Alert] = field(default_factory=dict)
    alerts: list[Alert] = field(default_factory=list)
    events: list[AlertEvent] = field(default_factory=list)
    owed: list[Delivery] = field(default_factory=list)

    @property
    def at(self) -> datetime:
        """Return the timestamp of the check."""
        at: datetime = convert_to_datetime(self.now)
        return at

    @property
    def shown(self) -> list[Alert]:
        """Return the alerts that have fired."""
        return [alert for alert in self.alerts if alert.state != Alert.State.PENDING]

    def note(self, alert: Alert, kind: Any, text: str = "") -> None:
        self.events.append(AlertEvent(alert=alert, at=self.at, kind=kind, text=text))
