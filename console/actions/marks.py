"""Marks on the timeline: deploys, and notes on an instant or a range. One way for pages, API and commands.

Changes are authorised and audited in one transaction. A mark that is removed stays in the database and the
audit; it only isn't shown any more. All raise PermissionDenied, and BadInput naming the field.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from console.accounts.access import Actor, demand
from console.audit import audit_log
from console.models import Mark
from queues.errors import BadInput

LONGEST_TITLE, LONGEST_TEXT = 80, 2_000
MOST_AHEAD = timedelta(minutes=5)


@transaction.atomic
def add(
    actor: Actor,
    *,
    title: str,
    now: datetime,
    kind: str = Mark.Kind.NOTE,
    text: str = "",
    at: datetime | None = None,
    until: datetime | None = None,
) -> Mark:
    """A mark at an instant (now, when none is given), or from it until another."""
    demand(actor, "mark.add")
    at = at or now
    _check(title.strip(), kind, text.strip(), at, until, now)
    mark = Mark.objects.create(
        kind=kind, title=title.strip(), text=text.strip(), at=at, until=until, author=actor.name
    )
    audit_log.record(actor, "mark.add", str(mark), reason=mark.text, after=described(mark))
    return mark


@transaction.atomic
def remove(actor: Actor, mark: Mark, *, reason: str, now: datetime) -> None:
    """Show it no more; removed twice it is removed once."""
    demand(actor, "mark.remove")
    if not reason.strip():
        raise BadInput("reason", "is missing; say why, for whoever reads the audit.")
    if Mark.objects.filter(pk=mark.pk, removed_at=None).update(removed_at=now):
        audit_log.record(actor, "mark.remove", str(mark), reason=reason.strip(), before=described(mark))


def between(since: datetime, until: datetime) -> QuerySet[Mark]:
    """The marks that touch a time range, the oldest first."""
    touches = Q(until__gte=since) | Q(until=None, at__gte=since)
    return Mark.objects.filter(touches, at__lte=until, removed_at=None).order_by("at", "pk")


def described(mark: Mark) -> dict[str, Any]:
    """A mark as JSON, its times as text."""
    return {
        "id": mark.pk,
        "kind": mark.kind,
        "title": mark.title,
        "text": mark.text,
        "at": mark.at.isoformat(),
        "until": mark.until and mark.until.isoformat(),
        "author": mark.author,
    }


def _check(title: str, kind: str, text: str, at: datetime, until: datetime | None, now: datetime) -> None:
    if not title:
        raise BadInput("title", "is missing; say in a few words what happened.")
    if len(title) > LONGEST_TITLE:
        raise BadInput("title", f"takes {LONGEST_TITLE} characters at most; the text takes {LONGEST_TEXT:,}.")
    if len(text) > LONGEST_TEXT:
        raise BadInput("text", f"takes {LONGEST_TEXT:,} characters at most.")
    if kind not in Mark.Kind.values:
        raise BadInput("kind", f"takes {' or '.join(Mark.Kind.values)}, not {kind[:40]!r}.")
    if at > now + MOST_AHEAD:
        raise BadInput("at", "lies ahead; a mark is about what has happened.")
    if until is not None and until < at:
        raise BadInput("until", "is before at; a range ends after it begins.")
