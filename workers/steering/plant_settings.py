"""The plant's own settings: name, default, range, unit, and help in one place.

The database stores the values that differ. Parameters of a single loop belong to its law or its guard
(`controllers.catalog`), not here.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from common.errors import BadInput
from common.parameter import Parameter
from workers.models import Setting
from workers.steering import prices

DECLARED = (
    Parameter(
        "approvals.operator",
        "approvals",
        "Number of approvals that a plan needs if an operator approves it. 2: a second user must approve, and"
        " the proposer can't be that user.",
        1,
        1,
        2,
        "integer",
    ),
    Parameter(
        "approvals.administrator",
        "approvals",
        "Number of approvals that a plan needs if an administrator approves it.",
        1,
        1,
        2,
        "integer",
    ),
    Parameter(
        "plan.expires_seconds",
        "s",
        "Time after which a proposed plan expires without approval; the first of two approvals restarts this period.",
        300.0,
        60.0,
        3_600.0,
    ),
    Parameter(
        "override.maximum_days",
        "days",
        "Maximum duration of an override. An administrator may set an override without an expiry.",
        7.0,
        1.0,
        31.0,
    ),
    Parameter(
        "override.notice_seconds",
        "s",
        "Time before an override expires at which the status strip offers to extend it (for a short override:"
        " half of its duration).",
        120.0,
        10.0,
        3_600.0,
    ),
    Parameter(
        "override.reminder_hours",
        "h",
        "Age at which an alert reminds people of a manual change without an end.",
        8.0,
        0.5,
        720.0,
    ),
    Parameter(
        "plant.production",
        "0 or 1",
        "1: this plant is in production, and drills are refused. 0: drills can break the plant for practice.",
        0,
        0,
        1,
        "integer",
    ),
    Parameter(
        "plant.welcome",
        "0 or 1",
        "1: operators see the page Welcome after login. 0: they see the overview.",
        1,
        0,
        1,
        "integer",
    ),
    Parameter("report.weekday", "weekday", "Day of the weekly report, UTC; 1 is Monday.", 1, 1, 7, "integer"),
    Parameter("report.hour", "h", "Hour of the weekly report, UTC.", 7, 0, 23, "integer"),
    Parameter("session.hours", "h", "Maximum duration of a session. Applies to new sessions.", 336.0, 0.5, 720.0),
    Parameter(
        "session.idle_minutes",
        "min",
        "Time after which a session ends if its user opens no page and sends nothing. Live updates of an open"
        " page don't count; raise the value for a wall display.",
        480.0,
        5.0,
        43_200.0,
    ),
    Parameter(
        "login.second_factor",
        "0 or 1",
        "1: an administrator with a local account acts as a viewer until a second factor (authenticator app)"
        " is set up. 0: a second factor is optional.",
        0,
        0,
        1,
        "integer",
    ),
    Parameter("token.maximum_days", "days", "Maximum validity of an API token.", 366, 1, 1_830, "integer"),
    *prices.DECLARED,
    Parameter(
        "quota.events_per_second",
        "events/s",
        "Maximum number of events that a token may publish over HTTP per second, on average over 10 s. A"
        " token may have its own quota.",
        100_000,
        1,
        100_000_000,
        "integer",
    ),
    Parameter(
        "quota.bytes_per_second",
        "bytes/s",
        "Maximum number of bytes of events (decompressed) that a token may publish over HTTP per second, on"
        " average over 10 s. A token may have its own quota.",
        32 * 2**20,
        1_000,
        10_000_000_000,
        "integer",
    ),
    Parameter(
        "quota.open_runs",
        "runs",
        "Maximum number of runs of batch tasks and experiments that a user may have waiting or running at once.",
        10,
        1,
        1_000,
        "integer",
    ),
    Parameter(
        "quota.batch_seconds",
        "s/h",
        "Maximum batch worker time of a user within an hour. Further runs are rejected until the time is"
        " below the limit.",
        3_600,
        60,
        1_000_000,
        "integer",
    ),
)
BY_NAME = {setting.name: setting for setting in DECLARED}


def find_declaration(name: str) -> Parameter:
    """Return a setting's declaration. Raises `BadInput` for an unknown name."""
    if name not in BY_NAME:
        raise BadInput("name", f"{name[:60]!r} is not a setting. The settings are {', '.join(BY_NAME)}.")
    return BY_NAME[name]


def get_setting_value(name: str) -> Any:
    """Return a setting's present value. Raises `BadInput` for an unknown name."""
    default = find_declaration(name).default
    row = Setting.objects.filter(name=name).first()
    return default if row is None else row.value


def format_setting(setting: object) -> str:
    """Return a setting in words, with all digits; one without a value says so."""
    if isinstance(setting, Mapping):
        setting = ", ".join(f"{name}={number:g}" for name, number in sorted(setting.items())) or None
    if setting is None or isinstance(setting, str):
        return setting or "not set"
    return f"{setting:,}".removesuffix(".0")


def list_changes() -> dict[str, Setting]:
    """Return the changed settings by name, with who changed them and when."""
    return {row.name: row for row in Setting.objects.select_related("changed_by") if row.name in BY_NAME}


def change(name: str, new: object, by: User | None, now: datetime) -> tuple[Any, Any]:
    """Set it permanently; return (before, after). Raises `BadInput` (name or value), also for no change."""
    parameter, before = find_declaration(name), get_setting_value(name)
    try:
        new = parameter.check(new, "value")
    except BadInput as error:
        raise BadInput("value", error.message) from None
    if new == before:
        raise BadInput("value", f"is already {format_setting(before)}.")
    if new in (None, {}):  # The database stores what differs from the default.
        Setting.objects.filter(name=name).delete()
        return before, new
    Setting.objects.update_or_create(name=name, defaults={"value": new, "changed_by": by, "changed_at": now})
    return before, new
