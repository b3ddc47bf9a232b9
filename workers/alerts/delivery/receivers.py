"""Receivers as people define them, checked by channel.

A receiver is never deleted while a rule names it, and never disabled while a schedule names it for when nobody is on
call.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from common import checks
from common.errors import BadInput
from workers.alerts.delivery import outbox
from workers.alerts.lifecycle.models import AlertRule, OnCallFeed, Receiver
from workers.alerts.rules import rules
from workers.host import egress

MAX_ADDRESSES = 20
ROUTED: Sequence[str] = ["critical", "warning"]  # what a new receiver takes by the default route
MAX_URL = 500
# Channels that accept a text. A browser shows only alerts, an Alertmanager accepts no text, a schedule
# resolves to people.
READ_BY_PEOPLE = ("email", "webhook", "apprise")
REACHED = ("url", "secret_environment")
SETTINGS = {
    "browser": (),
    "email": ("addresses",),
    "webhook": REACHED,
    "alertmanager": REACHED,
    "apprise": ("secret_environment", "answers_environment"),
    "schedule": ("secret_environment", "otherwise"),
}


def define(
    name: Any,
    channel: Any,
    settings: Mapping[str, Any],
    *,
    tells_resolved: bool = True,
    gets_reports: bool = False,
    enabled: bool = True,
    severities: Sequence[str] = ROUTED,
    team: str = "",
    route_minutes: float = 0.0,
) -> Receiver:
    """Create a receiver, or change the one of that name; messages that wait for a disabled one are given up.

    severities, team, route_minutes: what it takes by the default route (`workers.alerts.lifecycle.routing`). Raises
    `BadInput` naming the field.
    """
    checks.accept_name().validate(name, "name", end=".")
    channels = Receiver.Channel.values
    checks.accept_choice(channels).validate(channel, "channel", end=".")
    unknown = f"is not a setting of {channel}. The settings are {{known}}."
    checks.refuse_unknown(settings, SETTINGS[channel], "", message=unknown)
    if channel == Receiver.Channel.ALERTMANAGER and not tells_resolved:
        raise BadInput("tells_resolved", "must be on: otherwise, Alertmanager treats every alert as open for days.")
    if gets_reports and channel not in READ_BY_PEOPLE:
        raise BadInput("gets_reports", f"is available for {', '.join(READ_BY_PEOPLE)}, not {channel}.")
    _check_schedules(name, channel, settings, enabled)
    fields = {
        "channel": channel,
        "settings": READERS[channel](settings),
        "tells_resolved": tells_resolved,
        "gets_reports": gets_reports,
        "enabled": enabled,
        **validate_route(severities, team, route_minutes),
    }
    before = Receiver.objects.filter(name=name).first()
    made = Receiver.objects.update_or_create(name=name, defaults=fields)[0]
    if before is not None and _find_calendar_variable(before) != _find_calendar_variable(made):
        # A person on call by the previous calendar is not on call by this one.
        OnCallFeed.objects.filter(receiver=made).delete()
    if not enabled:
        outbox.give_up_switched_off()
    return made


def validate_route(severities: object, team: object, route_minutes: object) -> dict[str, Any]:
    """Return what a receiver takes by the default route. Raises `BadInput` naming the field."""
    known = AlertRule.Severity.values
    named = checks.list_of(checks.accept_choice(known), f"a list of {', '.join(known)}")
    given = named.validate(severities, "severities", end=".")
    return {
        "severities": [severity for severity in known if severity in given],
        "team": rules.validate_team(team),
        "route_minutes": float(
            checks.accept_number(0, rules.MAX_DELAY_MINUTES, "a number of minutes").validate(
                route_minutes, "route_minutes", end="."
            )
        ),
    }


def _find_calendar_variable(receiver: Receiver) -> str | None:
    """Return the variable that names a schedule's calendar; None if the receiver is no schedule."""
    is_schedule = receiver.channel == Receiver.Channel.SCHEDULE
    return receiver.settings.get("secret_environment") if is_schedule else None


def list_rules_using(receiver: Receiver) -> list[str]:
    """Return the rules whose escalation names the receiver."""
    return [
        rule.name
        for rule in AlertRule.objects.order_by("name")
        if any(receiver.name in step["receivers"] for step in rule.escalation or ())
    ]


def list_fallback_schedules(receiver: Receiver) -> list[str]:
    """Return the schedules that name the receiver for when nobody is on call."""
    schedules = Receiver.objects.filter(channel=Receiver.Channel.SCHEDULE).order_by("name")
    return [schedule.name for schedule in schedules if schedule.settings.get("otherwise") == receiver.name]


def _check_schedules(name: str, channel: str, settings: Mapping[str, Any], enabled: bool) -> None:
    """Check the receiver that an enabled schedule names for when nobody is on call.

    This receiver must be enabled, and must not be a schedule.
    """
    named = [schedule for schedule in list_fallback_schedules(Receiver(name=name)) if schedule != name]
    used = list(Receiver.objects.filter(name__in=named, enabled=True).values_list("name", flat=True))
    by = f"the receiver is the fallback of {', '.join(sorted(used)[:5])}. Choose another fallback there first."
    if used and channel == Receiver.Channel.SCHEDULE:
        raise BadInput("channel", f"can't be {channel}: {by}")
    if used and not enabled:
        raise BadInput("enabled", f"must be true: {by}")
    otherwise = settings.get("otherwise")
    if channel != Receiver.Channel.SCHEDULE or not enabled:
        return
    if otherwise == name or Receiver.objects.filter(name=str(otherwise), enabled=False).exists():
        raise BadInput("otherwise", "must be another receiver, and it must be enabled.")


def _validate_email_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    addresses = settings.get("addresses")
    if not isinstance(addresses, list) or not 1 <= len(addresses) <= MAX_ADDRESSES:
        raise BadInput("addresses", f"must have 1 to {MAX_ADDRESSES} email addresses.")
    for address in addresses:
        try:
            validate_email(address)
        except (ValidationError, TypeError):
            raise BadInput("addresses", f"must be email addresses, not {str(address)[:60]!r}.") from None
    return {"addresses": list(dict.fromkeys(addresses))}


def _validate_webhook_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    url, variable = settings.get("url"), settings.get("secret_environment") or ""
    if isinstance(url, str) and len(url) > MAX_URL:
        raise BadInput("url", f"must have at most {MAX_URL} characters.")
    host = egress.check_url(url).host
    if variable:
        egress.check_secret_name(str(variable), "secret_environment")
        egress.check_secret_host(str(variable), host)
    return {"url": url, "secret_environment": variable}


def _validate_apprise_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked settings of an apprise receiver.

    The address is a secret, and so is what proves answers: only names of variables are stored.
    """
    answers = settings.get("answers_environment") or ""
    if answers:
        egress.check_secret_name(str(answers), "answers_environment")
    return {**_find_secret_name(settings), **({"answers_environment": answers} if answers else {})}


def _find_secret_name(settings: Mapping[str, Any]) -> dict[str, Any]:
    variable = settings.get("secret_environment")
    egress.check_secret_name(str(variable or ""), "secret_environment")
    return {"secret_environment": variable}


def _schedule(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked settings of a schedule.

    Alerts don't wait for a calendar: a receiver is named for when nobody is on call.
    """
    otherwise = settings.get("otherwise")
    people = Receiver.objects.exclude(channel=Receiver.Channel.SCHEDULE)
    if not isinstance(otherwise, str) or not people.filter(name=otherwise).exists():
        raise BadInput("otherwise", "must be a receiver that is not a schedule.")
    return {**_find_secret_name(settings), "otherwise": otherwise}


READERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "browser": lambda settings: {},
    "email": _validate_email_settings,
    "webhook": _validate_webhook_settings,
    "alertmanager": _validate_webhook_settings,
    "apprise": _validate_apprise_settings,
    "schedule": _schedule,
}
