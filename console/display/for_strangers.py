"""What is said of a plant to people without a login: which part is unwell, and never why.

A finding's sentence may hold whatever broke: an address, somebody's name, the text of an error. A subject's
name and an alert's title hold none of that.
"""

from workers.documents.snapshot import Snapshot
from workers.documents.states import SEVERITIES

HIDDEN_NAMES = ("host",)  # a worker host is called by its host's name


def worst(snapshot: Snapshot) -> str:
    """The worst alert's title, else the subject of the worst finding; "" where nothing is wrong."""
    alerts = [each for each in snapshot.alerts if each.under is None and each.title]
    if alerts:
        return max(alerts, key=lambda each: _badness(each.severity)).title
    subjects = [each.subject for each in snapshot.health.findings if each.subject]
    return _named(subjects[0]) if subjects else ""


def _badness(severity: str) -> int:
    return next((place for place, name in enumerate(SEVERITIES) if name == severity), 0)


def _named(subject: str) -> str:
    """`Node n1` of `node/n1`."""
    kind, _, name = subject.partition("/")
    return f"{kind.capitalize()} {'' if kind in HIDDEN_NAMES else name}".strip()
