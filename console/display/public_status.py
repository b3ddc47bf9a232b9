"""The public status of a plant: the parts that have a problem, without the reason.

A finding's sentence may contain an address, a person's name, or the text of an error. A subject's name and an alert's
title contain none of that, except those of worker hosts, which are named after their hosts, of receivers, which may be
named after people, and of manual changes.
"""

from controllers.concurrency.law import LAW
from workers.documents.alerts import AlertStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import SEVERITIES

HIDDEN_NAMES = ("host",)
HIDDEN_LABELS = frozenset({"host", "receiver", "override", "what"})
LOOPS_OF_HOSTS, AT_A_PLANT = f"{LAW.name}/", "/plant:"


def describe_worst_problem(snapshot: Snapshot) -> str:
    """Return the worst alert's title, or else the subject of the worst finding; "" if there is no problem."""
    alerts = [alert for alert in snapshot.alerts if alert.under is None and alert.title]
    if alerts:
        return get_public_title(
            max(
                alerts,
                key=lambda state: next((place for place, name in enumerate(SEVERITIES) if name == state.severity), 0),
            )
        )
    subjects = [finding.subject for finding in snapshot.health.findings if finding.subject]
    return _name_subject(subjects[0]) if subjects else ""


def get_public_title(alert: AlertStatus) -> str:
    """Return the alert's title; its rule's name, in words, if the title may name a host or a person."""
    is_hidden = alert.labels.keys() & HIDDEN_LABELS or _is_of_a_host(alert.labels.get("loop", ""))
    return alert.rule.replace("-", " ").capitalize() if is_hidden else alert.title


def _is_of_a_host(loop: str) -> bool:
    """Return whether the loop is about a host: pools of an attached plant are named after hosts, too."""
    return loop.startswith(LOOPS_OF_HOSTS) or "/" in loop.partition(AT_A_PLANT)[2]


def _name_subject(subject: str) -> str:
    """Return `Node n1` for `node/n1`."""
    kind, _, name = subject.partition("/")
    is_hidden = kind in HIDDEN_NAMES or _is_of_a_host(name)
    return f"{kind.capitalize()} {'' if is_hidden else name}".strip()
