"""Rows of the database that many tests need: an override that somebody holds, an alert, a plan."""

from datetime import timedelta

from django.utils import timezone

from workers.alerts.lifecycle.models import Alert
from workers.models import Plan
from workers.steering import overrides


def held(owner, name, value, **more):
    """An override that is set as people set it, for half an hour; `more` says of what."""
    given = {"reason": "a test", "now": timezone.now(), "minutes": 30, **more}
    return overrides.set_override(owner=owner, name=name, value=value, **given)


def an_alert(condition="node_lost", **more):
    """An alert that fires since just now."""
    now = timezone.now()
    given = {"rule_name": condition, "fingerprint": condition.ljust(64, "0"), "labels": {}, "severity": "warning"}
    given |= {"title": "a test", "threshold": 10, "state": "firing", "began_at": now, "fired_at": now}
    return Alert.objects.create(condition=condition, **{**given, **more})


def a_plan(*queues, **more):
    """A plan that moves a point of each queue."""
    moves = [{"queue": queue, "from": "n1", "to": "n2", "points": 1} for queue in queues]
    given = {"kind": "hand", "title": "a test", "reason": "a test", "base": {}, "base_revision": 1, "hash": "0" * 64}
    given["expires_at"] = timezone.now() + timedelta(minutes=5)
    return Plan.objects.create(moves=moves, **{**given, **more})
