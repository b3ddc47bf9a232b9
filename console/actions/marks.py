"""Marks on the timeline: deploys, and notes on an instant or a range.

Pages, API, and commands share this implementation. Changes by people and programs are authorised and audited in one
transaction. A mark that is removed stays in the database and the audit; it only isn't shown any more. All raise
PermissionDenied, and BadInput naming the field.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from common.checks import make_storable
from common.errors import BadInput, RateLimited
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from console.models import Mark
from queues.models import Node, Queue
from workers.documents.snapshot import Snapshot

MAX_TITLE, MAX_TEXT = 80, 2_000
MAX_SOURCE, MAX_EVENT, MAX_URL = 300, 200, 500
MAX_AHEAD = timedelta(minutes=5)
PART = re.compile(r"(queue|node|application|operator|host|loop|producer)/(\S.{0,119})")
MAX_PARTS = 20
# Maximum number of outside changes in an hour, so that a runaway pipeline does not fill the table.
MAX_AN_HOUR, AN_HOUR_SECONDS = 1_000, 3_600
RETAINED = timedelta(days=400)  # the audit keeps a mark for longer
MAX_FORGOTTEN = 1_000  # with one new mark
DEPLOYS = ("deploy", "rollout", "release", "rollback", "roll-back", "rolledback", "rolled-back", "upgrade")


@dataclass(frozen=True, kw_only=True)
class OutsideChange:
    """A change that another system reports. source and event identify it: a repetition is the same change."""

    source: str
    event: str
    type: str
    title: str
    text: str = ""
    at: datetime
    parts: Sequence[str] = ()
    url: str = ""

    @property
    def kind(self) -> str:
        """Return "deploy" if the type contains one of the usual words."""
        lowered = self.type.lower()
        return Mark.Kind.DEPLOY if any(word in lowered for word in DEPLOYS) else Mark.Kind.CHANGE


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
    """Add a mark at an instant (now by default), or from it until another."""
    require_permission(actor, "mark.add")
    at = at or now
    _check(title.strip(), kind, text.strip(), at, until, now)
    _forget_old(now)
    mark = Mark.objects.create(kind=kind, title=title.strip(), text=text.strip(), at=at, until=until, author=actor.name)
    audit_log.record(actor, "mark.add", str(mark), reason=mark.text, after=describe_mark(mark))
    return mark


@transaction.atomic
def add_rollout(author: str, *, title: str, text: str, now: datetime) -> Mark:
    """Add a mark for a rollout that Weir detected, without an audit entry.

    The observer calls this. It has neither the audit's key nor the right to write to the audit, which records what
    people and their programs do.
    """
    _check(title, Mark.Kind.DEPLOY, text, now, None, now)
    _forget_old(now)
    return Mark.objects.create(kind=Mark.Kind.DEPLOY, title=title, text=text, at=now, author=author)


def add_outside(actor: Actor, change: OutsideChange, now: datetime) -> tuple[Mark, bool]:
    """Return the mark of an outside change, and whether it is new. Raises BadInput, RateLimited."""
    require_permission(actor, "mark.add")
    if (known := _parse_change(change)) is not None:
        return known, False
    _check(change.title, change.kind, change.text, change.at, None, now)
    check_names(source=change.source, id=change.event, type=change.type)
    if change.url and not (len(change.url) <= MAX_URL and change.url.startswith(("https://", "http://"))):
        raise BadInput("url", f"must be an http or https address of at most {MAX_URL} characters.")
    if len(change.parts) > MAX_PARTS:
        raise BadInput("parts", f"must have at most {MAX_PARTS} parts.")
    for part in change.parts:
        _check_part(part)
    lately = Mark.objects.exclude(event="").filter(created_at__gte=now - timedelta(hours=1))
    if lately.count() >= MAX_AN_HOUR:
        message = f"exceeds the limit of {MAX_AN_HOUR:,} events per hour. Try again later."
        raise RateLimited("event", message, AN_HOUR_SECONDS)
    try:
        with transaction.atomic():
            _forget_old(now)
            mark = Mark.objects.create(
                kind=change.kind,
                title=change.title,
                text=change.text,
                at=change.at,
                author=actor.name,
                created_at=now,
                source=change.source,
                event=change.event,
                parts=list(change.parts),
                url=change.url,
            )
            audit_log.record(actor, "mark.add", str(mark), reason=mark.text, after=describe_mark(mark))
    except IntegrityError:  # it was sent twice at once
        known = _parse_change(change)
        if known is None:
            raise
        return known, False
    return mark, True


def _forget_old(now: datetime) -> None:
    """Delete the oldest marks that ended more than RETAINED ago: programs set marks, too."""
    old = Mark.objects.filter(at__lt=now - RETAINED, created_at__lt=now - RETAINED)
    due = old.filter(Q(until=None) | Q(until__lt=now - RETAINED)).order_by("pk")
    Mark.objects.filter(pk__in=list(due.values_list("pk", flat=True)[:MAX_FORGOTTEN])).delete()


def _parse_change(change: OutsideChange) -> Mark | None:
    return Mark.objects.filter(source=change.source, event=change.event).exclude(event="").first()


def check_names(*, source: str, id: str, type: str) -> None:
    """Raise `BadInput` that names a missing or too long part of an outside change.

    The check runs before more of the change is read.
    """
    for name, value, longest in (("source", source, MAX_SOURCE), ("id", id, MAX_EVENT), ("type", type, MAX_EVENT)):
        if not 0 < len(value) <= longest:
            raise BadInput(name, f"must have 1 to {longest} characters.")


def _check_part(part: str) -> None:
    """Check that the part exists if its kind has a table: a misspelled part could never be found again."""
    matched = PART.fullmatch(part)
    if matched is None:
        raise BadInput("parts", f"must be parts such as queue/alert or node/n1, not {part[:40]!r}.")
    kind, name = matched.groups()
    known = {"queue": Queue.objects.filter(name=name), "node": Node.objects.filter(name=name)}
    if kind in known and not known[kind].exists():
        raise BadInput("parts", f"{part} does not exist. Leave it out for the whole plant.")


@transaction.atomic
def remove(actor: Actor, mark: Mark, *, reason: str, now: datetime) -> None:
    """Hide the mark; removing it twice has no further effect."""
    require_permission(actor, "mark.remove")
    if not reason.strip():
        raise BadInput("reason", "is missing. Give a reason for the audit log.")
    if Mark.objects.filter(pk=mark.pk, removed_at=None).update(removed_at=now):
        audit_log.record(actor, "mark.remove", str(mark), reason=reason.strip(), before=describe_mark(mark))


def list_between(since: datetime, until: datetime) -> QuerySet[Mark]:
    """Return the marks that touch a time range, the oldest first."""
    touches = Q(until__gte=since) | Q(until=None, at__gte=since)
    return Mark.objects.filter(touches, at__lte=until, removed_at=None).order_by("at", "pk")


def list_newest_marks(since: datetime, until: datetime, rows: int, before: int | None = None) -> tuple[list[Mark], int]:
    """Return the newest marks in a time range, the oldest first, and the number of older ones.

    All marks are older than `before`. Raises `BadInput` if `before` is no mark.
    """
    marks = list_between(since, until)
    if before is not None:
        at = Mark.objects.filter(pk=before).values_list("at", flat=True).first()
        if at is None:
            raise BadInput("before", "is not a mark. Use the value of `next`.")
        marks = marks.filter(Q(at__lt=at) | Q(at=at, pk__lt=before))
    shown = list(marks.order_by("-at", "-pk")[:rows])
    more = marks.count() - len(shown) if len(shown) == rows else 0
    return shown[::-1], more


def describe_mark(mark: Mark) -> dict[str, Any]:
    """Return a mark as JSON, its times as text."""
    return {
        "id": mark.pk,
        "kind": mark.kind,
        "title": mark.title,
        "text": mark.text,
        "at": mark.at.isoformat(),
        "until": mark.until and mark.until.isoformat(),
        "author": mark.author,
        "source": mark.source,
        "event": mark.event,
        "parts": mark.parts,
        "url": mark.url,
    }


def _check(title: str, kind: str, text: str, at: datetime, until: datetime | None, now: datetime) -> None:
    if not title:
        raise BadInput("title", "is missing. Describe the event in a few words.")
    if len(title) > MAX_TITLE:
        raise BadInput("title", f"must have at most {MAX_TITLE} characters. Text can have {MAX_TEXT:,}.")
    if len(text) > MAX_TEXT:
        raise BadInput("text", f"must have at most {MAX_TEXT:,} characters.")
    if kind not in Mark.Kind.values:
        raise BadInput("kind", f"must be {' or '.join(Mark.Kind.values)}, not {kind[:40]!r}.")
    if at > now + MAX_AHEAD:
        raise BadInput("at", "is in the future. A mark describes a past event.")
    if until is not None and until < at:
        raise BadInput("until", "is before `at`. A range ends after its start.")


SEEN = "seen"


class RolloutMarks:
    """Follows snapshots in their order.

    A rollout while it was not running is marked when it is seen, if an earlier rollout of the part was.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], str] = {}

    def follow(self, snapshot: Snapshot) -> None:
        """Mark the rollouts in a snapshot. Raises the database's errors."""
        for plant, row in snapshot.plants.items():
            for part, revision in make_storable(row.revisions).items() if row.state == SEEN else ():
                before = self._before.get((plant, part)) or _find_marked_revision(plant, part, revision)
                # Another observer may have run in the meantime, and have marked it.
                if before not in ("", revision) and _find_marked_revision(plant, part, revision) != revision:
                    text = f"Rolled out at {plant}; the previous revision was {before}."
                    add_rollout(
                        _format_author(plant),
                        title=_format_title(part, revision),
                        text=text,
                        now=datetime.fromtimestamp(snapshot.at or 0.0, UTC),
                    )
                self._before[plant, part] = revision


def _find_marked_revision(plant: str, part: str, revision: str) -> str:
    """Return the revision of the newest mark, "" if there is none.

    The mark of a long one only has its start: revisions with the same title are the same.
    """
    rows = Mark.objects.filter(author=_format_author(plant), title__startswith=_format_title(part)).order_by("-at")
    if (row := rows.first()) is None:
        return ""
    return revision if row.title == _format_title(part, revision) else row.title.removeprefix(_format_title(part))


def _format_author(plant: str) -> str:
    return f"plant:{plant}"


def _format_title(part: str, revision: str = "") -> str:
    return f"{part}: revision {revision}"[:MAX_TITLE]
