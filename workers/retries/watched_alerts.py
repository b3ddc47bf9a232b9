"""Alerts that stop a retry plan: those about its plant, and those about service levels."""

from datetime import datetime

from workers.alerts.lifecycle.models import Alert

OPEN = (Alert.State.FIRING, Alert.State.ACKNOWLEDGED)
STOPPING = ("critical", "warning")
OBJECTIVE = "objective"  # the label of conditions about service levels


def list_alerts(plant: str, since: datetime) -> list[str]:
    """Return the titles of such alerts that fired since an instant and are not resolved."""
    fired = Alert.objects.filter(state__in=OPEN, severity__in=STOPPING, fired_at__gte=since).order_by("fired_at")
    return [
        title
        for title, labels in fired.values_list("title", "labels")
        if labels.get("plant") == plant or OBJECTIVE in labels
    ]
