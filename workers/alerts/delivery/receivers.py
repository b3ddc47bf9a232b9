"""Receivers as people set them: checked by channel, never deleted while a rule names them, and never switched
off while a schedule names them for when nobody is on call.
"""

from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from queues import checks
from queues.errors import BadInput
from workers.alerts.delivery import outbox
from workers.alerts.lifecycle.models import AlertRule, OnCallFeed, Receiver
from workers.host import egress

MOST_ADDRESSES = 20
LONGEST_URL = 500
# What takes a text; a browser shows alerts alone, an Alertmanager takes no text, a schedule is its people.
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
) -> Receiver:
    """Make a receiver, or change the one of that name; what waits for one that is switched off is given up.
    Raises BadInput naming the field.
    """
    checks.name().validate(name, "name", end=".")
    channels = Receiver.Channel.values
    checks.choice(channels, ", ".join(channels)).validate(channel, "channel", end=".")
    unknown = f"is not known to {channel}; its settings: {{known}}."
    checks.refuse_unknown(settings, SETTINGS[channel], "", message=unknown)
    if channel == Receiver.Channel.ALERTMANAGER and not tells_resolved:
        raise BadInput("tells_resolved", "stays on: Alertmanager would take every alert as open for days.")
    if gets_reports and channel not in READ_BY_PEOPLE:
        raise BadInput("gets_reports", f"is for {', '.join(READ_BY_PEOPLE)}, not {channel}.")
    _check_schedules(name, channel, settings, enabled)
    fields = {
        "channel": channel,
        "settings": READERS[channel](settings),
        "tells_resolved": tells_resolved,
        "gets_reports": gets_reports,
        "enabled": enabled,
    }
    before = Receiver.objects.filter(name=name).first()
    made = Receiver.objects.update_or_create(name=name, defaults=fields)[0]
    if before is not None and _calendar(before) != _calendar(made):
        # Whoever was on call by the one before is not by this one.
        OnCallFeed.objects.filter(receiver=made).delete()
    if not enabled:
        outbox.give_up_switched_off()
    return made


def _calendar(receiver: Receiver) -> str | None:
    """The variable that names a schedule's calendar; None of what is no schedule."""
    is_schedule = receiver.channel == Receiver.Channel.SCHEDULE
    return receiver.settings.get("secret_environment") if is_schedule else None


def list_rules_using(receiver: Receiver) -> list[str]:
    """The rules whose escalation names it."""
    return [
        rule.name
        for rule in AlertRule.objects.order_by("name")
        if any(receiver.name in step["receivers"] for step in rule.escalation)
    ]


def schedules_of(receiver: Receiver) -> list[str]:
    """The schedules that name it for when nobody is on call."""
    schedules = Receiver.objects.filter(channel=Receiver.Channel.SCHEDULE).order_by("name")
    return [schedule.name for schedule in schedules if schedule.settings.get("otherwise") == receiver.name]


def _check_schedules(name: str, channel: str, settings: Mapping[str, Any], enabled: bool) -> None:
    """Whom a schedule in use names for when nobody is on call is there: switched on, and no schedule."""
    named = [schedule for schedule in schedules_of(Receiver(name=name)) if schedule != name]
    used = list(Receiver.objects.filter(name__in=named, enabled=True).values_list("name", flat=True))
    by = f"{', '.join(sorted(used)[:5])} names it for when nobody is on call; name another there first."
    if used and channel == Receiver.Channel.SCHEDULE:
        raise BadInput("channel", f"can't become schedule: {by}")
    if used and not enabled:
        raise BadInput("enabled", f"stays on: {by}")
    otherwise = settings.get("otherwise")
    if channel != Receiver.Channel.SCHEDULE or not enabled:
        return
    if otherwise == name or Receiver.objects.filter(name=str(otherwise), enabled=False).exists():
        raise BadInput("otherwise", "takes another receiver that is switched on; switch it on first.")


def _email(settings: Mapping[str, Any]) -> dict[str, Any]:
    addresses = settings.get("addresses")
    if not isinstance(addresses, list) or not 1 <= len(addresses) <= MOST_ADDRESSES:
        raise BadInput("addresses", f"takes 1 to {MOST_ADDRESSES} e-mail addresses.")
    for address in addresses:
        try:
            validate_email(address)
        except (ValidationError, TypeError):
            raise BadInput("addresses", f"{str(address)[:60]!r} is no e-mail address.") from None
    return {"addresses": list(dict.fromkeys(addresses))}


def _webhook(settings: Mapping[str, Any]) -> dict[str, Any]:
    url, variable = settings.get("url"), settings.get("secret_environment") or ""
    if isinstance(url, str) and len(url) > LONGEST_URL:
        raise BadInput("url", f"takes at most {LONGEST_URL} characters.")
    host = egress.check_url(url).host
    if variable:
        egress.check_secret_name(str(variable), "secret_environment")
        egress.check_secret_host(str(variable), host)
    return {"url": url, "secret_environment": variable}


def _apprise(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The address itself is a secret, and so is what answers are proven by: names of variables are kept."""
    answers = settings.get("answers_environment") or ""
    if answers:
        egress.check_secret_name(str(answers), "answers_environment")
    return {**_find_secret_name(settings), **({"answers_environment": answers} if answers else {})}


def _find_secret_name(settings: Mapping[str, Any]) -> dict[str, Any]:
    variable = settings.get("secret_environment")
    egress.check_secret_name(str(variable or ""), "secret_environment")
    return {"secret_environment": variable}


def _schedule(settings: Mapping[str, Any]) -> dict[str, Any]:
    """An alert waits for no calendar: somebody is named for when it says nobody."""
    otherwise = settings.get("otherwise")
    people = Receiver.objects.exclude(channel=Receiver.Channel.SCHEDULE)
    if not isinstance(otherwise, str) or not people.filter(name=otherwise).exists():
        raise BadInput("otherwise", "takes a receiver that is no schedule, for when nobody is on call.")
    return {**_find_secret_name(settings), "otherwise": otherwise}


READERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "browser": lambda settings: {},
    "email": _email,
    "webhook": _webhook,
    "alertmanager": _webhook,
    "apprise": _apprise,
    "schedule": _schedule,
}
