"""Earlier incidents like this one, and what people did about them."""

from dataclasses import dataclass
from pathlib import Path

from console.incidents.incident_timeline import list_changes_during
from workers.alerts.lifecycle.models import Alert

MAX_SHOWN = 3
SUBJECT_LABELS = ("queue", "node", "host", "loop", "pipeline", "plant", "objective")


@dataclass(frozen=True)
class SimilarIncident:
    """An earlier incident of the same condition at the same subject. remedy: what a person did last; "" if nothing."""

    alert: Alert
    remedy: str
    by: str
    after_seconds: float | None


def list_similar_incidents(alert: Alert, data: Path) -> list[SimilarIncident]:
    """Return the newest similar incidents that are over. Only the newest has its remedy, which takes long to read."""
    query = Alert.objects.filter(
        condition=alert.condition, under=None, fired_at__lt=alert.fired_at, resolved_at__isnull=False
    ).exclude(pk=alert.pk)
    for label in SUBJECT_LABELS:
        if label in alert.labels:
            query = query.filter(**{f"labels__{label}": alert.labels[label]})
    rows = list(query.select_related("incident").order_by("-fired_at")[:MAX_SHOWN])
    return [_describe(row, data, with_remedy=place == 0) for place, row in enumerate(rows)]


def _describe(alert: Alert, data: Path, with_remedy: bool) -> SimilarIncident:
    acted = [change for change in list_changes_during(alert, data) if change.kind == "person"] if with_remedy else []
    if not acted or alert.fired_at is None:
        return SimilarIncident(alert, "", "", None)
    last = acted[-1]
    return SimilarIncident(alert, last.words, last.by, max(0.0, (last.at - alert.fired_at).total_seconds()))
