"""The receivers that an alert notifies: the rule's own route, or the default route by severity and team.

A rule's `escalation` is its own route: steps of receivers, or none for nobody. Without one (null), the default route
applies: each enabled receiver that takes the alert's severity, at once or after its own delay. A receiver of a team
takes only the alerts of this team's rules; a receiver without a team takes those of all rules.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workers.alerts.lifecycle.models import Alert, AlertRule, Receiver

Step = Mapping[str, Any]  # after_minutes, receivers (names)


def find_steps(alert: Alert, receivers: Iterable[Receiver] | None = None) -> Sequence[Step]:
    """Return the steps of an alert. receivers: all enabled ones, if they are known."""
    return [] if alert.rule is None else find_rule_steps(alert.rule, alert.severity, receivers)


def find_rule_steps(rule: AlertRule, severity: str, receivers: Iterable[Receiver] | None = None) -> Sequence[Step]:
    """Return the steps of a rule's alerts of a severity."""
    if rule.escalation is not None:
        steps: Sequence[Step] = rule.escalation
        return steps
    known = Receiver.objects.filter(enabled=True) if receivers is None else receivers
    return build_default_steps(known, severity, rule.team)


def build_default_steps(receivers: Iterable[Receiver], severity: str, team: str) -> list[Step]:
    """Return the default route of alerts of a severity and a team ("": none)."""
    taking = [row for row in receivers if row.enabled and severity in row.severities and row.team in ("", team)]
    delays = sorted({row.route_minutes for row in taking})
    return [
        {"after_minutes": delay, "receivers": sorted(row.name for row in taking if row.route_minutes == delay)}
        for delay in delays
    ]


def describe_steps(steps: Sequence[Step]) -> str:
    """Return who is notified in words: consoles, desk at once; manager after 15 min."""
    words = [
        f"{', '.join(step['receivers'])} {'at once' if not step['after_minutes'] else _format_delay(step)}"
        for step in steps
    ]
    return "; ".join(words) or "nobody"


def _format_delay(step: Step) -> str:
    return f"after {step['after_minutes']:g} min"
