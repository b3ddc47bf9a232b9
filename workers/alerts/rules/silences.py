"""Silences: set with a reason and an end, previewed with what they hide, and ended at any time."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet

from common import checks
from common.errors import BadInput
from workers.alerts.conditions.catalog import INTEGRITY
from workers.alerts.lifecycle.models import Alert, AlertRule, Silence
from workers.alerts.lifecycle.open_alerts import OPEN
from workers.alerts.rules import rules
from workers.steering.overrides import read_reason

MAX_MINUTES = 7 * 24 * 60
LATELY = timedelta(days=7)
MAX_SHOWN = 200


def get_matchable_labels(alert: Alert) -> dict[str, str]:
    """Return the labels that a silence may match."""
    return {**alert.labels, "rule": alert.rule_name, "severity": alert.severity}


def is_matched(matchers: Sequence[Mapping[str, str]], alert: Alert, *, covers_integrity: bool) -> bool:
    """Return whether a silence with these matchers hides an alert.

    It hides alerts about Weir's own integrity only if it covers them.
    """
    if alert.condition in INTEGRITY and not covers_integrity:
        return False
    return rules.matches(matchers, get_matchable_labels(alert))


def covers(silence: Silence, alert: Alert) -> bool:
    """Return whether a silence hides an alert."""
    return is_matched(silence.matchers, alert, covers_integrity=silence.covers_integrity)


def list_active_silences(now: datetime) -> QuerySet[Silence]:
    """Return the silences in force at this instant, the longest first.

    They are also in force if the clock was set back since one was made.
    """
    standing = Silence.objects.filter(expires_at__gt=now, ended_at__isnull=True)
    return standing.order_by("-expires_at", "pk")


def preview_hidden_alerts(
    matchers: Sequence[Mapping[str, str]], now: datetime, *, covers_integrity: bool
) -> dict[str, Any]:
    """Preview what a silence would hide.

    The preview has the open alerts that it matches now. It also has how many of last week's alerts it would have
    matched, of how many.
    """
    lately = Alert.objects.filter(fired_at__gte=now - LATELY)
    open_now = Alert.objects.filter(state__in=OPEN).order_by("-fired_at")
    matched, open_matched = (
        [alert for alert in alerts if is_matched(matchers, alert, covers_integrity=covers_integrity)]
        for alerts in (lately, open_now)
    )
    return {"open": open_matched[:MAX_SHOWN], "lately": len(matched), "of": lately.count()}


def list_integrity_rules(matchers: object) -> list[str]:
    """Return the rules of Weir's own integrity that these matchers ask for.

    The result is empty if they ask for any other rule: an operator's silence of them would hide nothing. Raises
    `BadInput`.
    """
    of_rule = [matcher for matcher in rules.read_matchers(matchers, least=1) if matcher["label"] == "rule"]
    known = dict(AlertRule.objects.values_list("name", "condition"))
    named = [name for name in sorted(known) if of_rule and rules.matches(of_rule, {"rule": name})]
    return named if all(known[name] in INTEGRITY for name in named) else []


def add(
    matchers: object, reason: object, minutes: object, by: User, now: datetime, *, covers_integrity: bool = False
) -> Silence:
    """Add a silence from now on; it lasts a week at most. Raises `BadInput`."""
    read = rules.read_matchers(matchers, least=1)
    text = read_reason(reason)
    until = now + timedelta(minutes=_validate_minutes(minutes))
    return Silence.objects.create(
        matchers=read, reason=text, owner=by, created_at=now, expires_at=until, covers_integrity=covers_integrity
    )


def end(silence: Silence, by: User | None, now: datetime) -> bool:
    """End the silence now; return False if it was over already."""
    still = Silence.objects.filter(pk=silence.pk, ended_at__isnull=True, expires_at__gt=now)
    return bool(still.update(ended_at=now, ended_by=by))


def extend(silence: Silence, until: datetime, now: datetime) -> None:
    """Set a later end, at most a week from now. Raises `BadInput`."""
    if until > now + timedelta(minutes=MAX_MINUTES):
        raise BadInput("minutes", "must be a smaller number: a silence can end at most 7 days from now.")
    still = Silence.objects.filter(pk=silence.pk, ended_at__isnull=True, expires_at__gt=now)
    if not still.update(expires_at=until):
        raise BadInput("silence", "has already ended. Set a new one.")


def _validate_minutes(minutes: object) -> float:
    if not checks.is_number(minutes, 0, MAX_MINUTES) or minutes <= 0:
        raise BadInput("minutes", f"must be above 0 and at most {MAX_MINUTES} minutes (7 days).")
    return float(minutes)
