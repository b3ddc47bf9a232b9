"""What is said of a plant to people without a login: which part is unwell, and never why.

A finding's sentence may hold whatever broke: an address, somebody's name, the text of an error. A subject's
name and an alert's title hold none of that, but for those of worker hosts, which are called by their hosts'
names, of receivers, which may be called after people, and of what a person has set.
"""

from controllers.concurrency.law import LAW
from workers.documents.alerts import AlertStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import SEVERITIES

HIDDEN_NAMES = ("host",)
HIDDEN_LABELS = frozenset({"host", "receiver", "override", "what"})
LOOPS_OF_HOSTS, AT_A_PLANT = f"{LAW.name}/", "/plant:"


def worst(snapshot: Snapshot) -> str:
    """The worst alert's title, else the subject of the worst finding; "" where nothing is wrong."""
    alerts = [alert for alert in snapshot.alerts if alert.under is None and alert.title]
    if alerts:
        return title_of(max(alerts, key=lambda state: _badness(state.severity)))
    subjects = [finding.subject for finding in snapshot.health.findings if finding.subject]
    return _name_subject(subjects[0]) if subjects else ""


def title_of(alert: AlertStatus) -> str:
    """Its title; its rule's name, in words, where the title may name a host or a person."""
    is_hidden = alert.labels.keys() & HIDDEN_LABELS or _is_of_a_host(alert.labels.get("loop", ""))
    return alert.rule.replace("-", " ").capitalize() if is_hidden else alert.title


def _is_of_a_host(loop: str) -> bool:
    """A pool of an attached plant is called after one, too."""
    return loop.startswith(LOOPS_OF_HOSTS) or "/" in loop.partition(AT_A_PLANT)[2]


def _badness(severity: str) -> int:
    return next((place for place, name in enumerate(SEVERITIES) if name == severity), 0)


def _name_subject(subject: str) -> str:
    """`Node n1` of `node/n1`."""
    kind, _, name = subject.partition("/")
    is_hidden = kind in HIDDEN_NAMES or _is_of_a_host(name)
    return f"{kind.capitalize()} {'' if is_hidden else name}".strip()
