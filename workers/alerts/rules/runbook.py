"""The address of an alert's runbook: the one that its rule names, else the condition's page in Help."""

from django.conf import settings

from workers.alerts.lifecycle.models import AlertRule
from workers.alerts.rules.shipped import FIRST_RULES

HELP = "/help/operate/alerts/"
PAGES = {rule["condition"]: name for name, rule in FIRST_RULES.items()} | {
    "sensor_above": "sensor-silent",  # one page for everything that is watched of sensors
    "sensor_below": "sensor-silent",
}


def get_help_path(rule: AlertRule) -> str:
    """Return the link on a page of this console."""
    if rule.runbook:
        return rule.runbook
    # A condition without a default rule has no page of its own.
    return f"{HELP}{PAGES[rule.condition]}/" if rule.condition in PAGES else HELP


def get_runbook_url(rule: AlertRule) -> str:
    """Return the absolute address for messages, which are read elsewhere."""
    return rule.runbook or f"{settings.WEIR_PUBLIC_URL}{get_help_path(rule)}"
