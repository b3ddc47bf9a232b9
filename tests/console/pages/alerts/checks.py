"""What the tests of alert pages share."""

from typing import Any

from django.test import Client
from django.utils import timezone

from console.models import AuditEntry
from tests.workers.alerts.checks import lost
from tests.workers.snapshots import snapshot_of
from workers.alerts.conditions.evidence import Evidence
from workers.alerts.evaluation import evaluator
from workers.alerts.lifecycle.models import Alert

REASON = {"reason": "a calm night"}


def look(seconds: float = 0.0, snapshot: Any = None) -> None:
    now = timezone.now().timestamp() + seconds
    evaluator.check(Evidence(now=now, snapshot=snapshot_of(lost() if snapshot is None else snapshot)), 1)


def fetch(browser: Client, address: str, posted: dict[str, Any] | None = None) -> Any:
    """As forms.js posts."""
    return browser.post(address, posted or {}, headers={"accept": "application/json"})


def audited() -> list[tuple[str, str, str]]:
    return [(each.actor, each.action, each.target) for each in AuditEntry.objects.order_by("id")]


def matcher(value: str = "n1", label: str = "node", operator: str = "=") -> dict[str, Any]:
    return {"matcher-label": label, "matcher-is": operator, "matcher-value": value}


def opened(condition: str, **labels: str) -> Alert:
    """An open alert of another condition, beside the one of the fixture."""
    made = Alert.objects.earliest("pk")
    made.pk, made.condition, made.labels, made.fingerprint = None, condition, labels, condition
    made.save()
    return made
