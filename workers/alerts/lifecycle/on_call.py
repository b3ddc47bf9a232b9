"""Who is told next, or who has it, in one sentence."""

from datetime import datetime
from typing import Any

from workers.alerts.lifecycle.models import Alert
from workers.alerts.lifecycle.open_alerts import quiet_of


def situation(alert: Alert) -> dict[str, Any]:
    """{"words", "until": a moment counted down to, or None}."""
    if alert.resolved_at is not None:
        return {"words": "It is over.", "until": None}
    quiet, until = quiet_of(alert)
    if quiet == "acknowledged":
        who = alert.acknowledged_by.get_username() if alert.acknowledged_by else "somebody"
        return {"words": f"{who} has it; it fires again in", "until": until}
    if quiet == "silenced":
        assert alert.silence is not None
        return {"words": f"Silenced by {alert.silence.owner}; the silence ends in", "until": until}
    if quiet == "snoozed":
        who = alert.snoozed_by.get_username() if alert.snoozed_by else "somebody"
        return {"words": f"Snoozed by {who}; it tells again in", "until": until}
    if quiet == "explained":
        return {"words": "It tells nobody: another alert explains it.", "until": None}
    return _telling(alert)


def _telling(alert: Alert) -> dict[str, Any]:
    steps: list[dict[str, Any]] = alert.rule.escalation if alert.rule else []
    if not steps:
        return {"words": "Not acknowledged; its rule tells nobody.", "until": None}
    if alert.next_step >= len(steps):
        return {"words": f"Not acknowledged; told: {_names(steps)}. Nobody is left to tell.", "until": None}
    names = " and ".join(steps[alert.next_step]["receivers"])
    due = next_step_at(alert)
    if due is None:
        return {"words": f"Not acknowledged; {names} will be told.", "until": None}
    verb = "escalates to" if alert.next_step else "tells"
    return {"words": f"Not acknowledged; {verb} {names} in", "until": due}


def next_step_at(alert: Alert) -> datetime | None:
    """When the next step is due; None when there is none, or it is not counted."""
    steps = alert.rule.escalation if alert.rule else []
    if alert.told_from is None or alert.next_step >= len(steps):
        return None
    from_seconds = alert.told_from.timestamp() + 60.0 * steps[alert.next_step]["after_minutes"]
    return datetime.fromtimestamp(from_seconds, alert.told_from.tzinfo)


def _names(steps: list[dict[str, Any]]) -> str:
    return ", ".join(dict.fromkeys(name for step in steps for name in step["receivers"]))
