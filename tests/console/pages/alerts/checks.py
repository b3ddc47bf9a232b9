"""What the tests of alert pages share."""

from django.utils import timezone

from tests.workers.alerts.checks import lost
from tests.workers.snapshots import snapshot_of
from workers.alerts.conditions.evidence import Evidence
from workers.alerts.evaluation import evaluator
from workers.alerts.lifecycle.models import Alert

REASON = {"reason": "a calm night"}


def look(seconds=0.0, snapshot=None):
    now = timezone.now().timestamp() + seconds
    evaluator.check(Evidence(now=now, snapshot=snapshot_of(lost() if snapshot is None else snapshot)), 1)


def matcher(value="n1", label="node", operator="="):
    return {"matcher-label": label, "matcher-is": operator, "matcher-value": value}


def opened(condition, **labels):
    """An open alert of another condition, beside the one of the fixture."""
    made = Alert.objects.earliest("pk")
    made.pk, made.condition, made.labels, made.fingerprint = None, condition, labels, condition
    made.save()
    return made
