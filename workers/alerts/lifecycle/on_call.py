"""Who is notified next, or who has acknowledged, in one sentence."""

from datetime import datetime
from typing import Any

from workers.alerts.lifecycle.models import Alert
from workers.alerts.lifecycle.open_alerts import suppression_of


def situation(alert: Alert) -> dict[str, Any]:
    """{"words", "until": a timestamp counted down to, or None}."""
    if alert.resolved_at is not None:
        length = alert.length_seconds
        after = "" if length is None else f" after {_age(length)}"
        return {"words": f"Resolved at {alert.resolved_at:%H:%M:%S} UTC{after}.", "until": None}
    suppression, until = suppression_of(alert)
    if suppression == "acknowledged":
        who = alert.acknowledged_by.get_username() if alert.acknowledged_by else "somebody"
        return {"words": f"Acknowledged by {who}; fires again in", "until": until}
    if suppression == "silenced":
        assert alert.silence is not None
        return {"words": f"Silenced by {alert.silence.owner}; the silence ends in", "until": until}
    if suppression == "snoozed":
        who = alert.snoozed_by.get_username() if alert.snoozed_by else "somebody"
        return {"words": f"Snoozed by {who}; notifies again in", "until": until}
    if suppression == "explained":
        return {"words": "Notifies nobody: another alert explains it.", "until": None}
    if suppression == "paused":
        return {"words": f"Notifies nobody: {alert.explanation}", "until": None}
    return _notifying(alert)


def _notifying(alert: Alert) -> dict[str, Any]:
    steps: list[dict[str, Any]] = alert.rule.escalation if alert.rule else []
    if not steps:
        return {"words": "Not acknowledged; its rule notifies nobody.", "until": None}
    if alert.next_step >= len(steps):
        words = f"Not acknowledged. Notified: {_names(steps)}; no further step."
        return {"words": words, "until": None}
    names = " and ".join(steps[alert.next_step]["receivers"])
    due = next_step_at(alert)
    if due is None:
        return {"words": f"Not acknowledged; {names} will be notified.", "until": None}
    verb = "escalates to" if alert.next_step else "notifies"
    return {"words": f"Not acknowledged; {verb} {names} in", "until": due}


def next_step_at(alert: Alert) -> datetime | None:
    """When the next step is due; None when there is none, or it is not counted."""
    steps = alert.rule.escalation if alert.rule else []
    if alert.told_from is None or alert.next_step >= len(steps):
        return None
    from_seconds = alert.told_from.timestamp() + 60.0 * steps[alert.next_step]["after_minutes"]
    return datetime.fromtimestamp(from_seconds, alert.told_from.tzinfo)


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _names(steps: list[dict[str, Any]]) -> str:
    return ", ".join(dict.fromkeys(name for step in steps for name in step["receivers"]))
