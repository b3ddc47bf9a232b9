"""Links to the plant as it was at an instant, for people without a login.

Pages and API share this implementation.

    link = /shared/{number}:{HMAC-SHA256 of the number, by the console's own key}/

A link can't be guessed or derived from the database, and a new key ends all links. It shows one instant and nothing
else, until it expires or is ended. It shows the whole plant, so users who are limited to some queues can't share one.
Both changes are audited. All raise `PermissionDenied`, and `BadInput` that names the field.
"""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.signing import BadSignature, Signer
from django.db import transaction
from django.db.models import QuerySet
from django.urls import reverse

from common import parsing
from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from console.models import SharedLink
from workers.history.snapshot_archive import snapshot_at

SALT = "weir.shared-link"
MAX_HOURS = 168.0
MAX_OPEN = 200
MAX_REASON = 500
RETAINED = timedelta(days=90)  # after its end; the audit keeps it for longer


@transaction.atomic
def share(actor: Actor, *, at: datetime, hours: float, reason: str, now: datetime) -> SharedLink:
    """Create a link to a kept instant, which expires after so many hours. Links that ended long ago are deleted."""
    require_permission(actor, "link.make")
    _check(at, hours, reason.strip(), now)
    SharedLink.objects.filter(expires_at__lt=now - RETAINED).delete()
    link = SharedLink.objects.create(
        at=at, reason=reason.strip(), author=actor.name, created_at=now, expires_at=now + timedelta(hours=hours)
    )
    audit_log.record(actor, "link.make", str(link), reason=link.reason, after=describe_link(link))
    return link


@transaction.atomic
def end(actor: Actor, link: SharedLink, *, reason: str, now: datetime) -> None:
    """End a link; ending it twice has no further effect."""
    require_permission(actor, "link.end")
    if not reason.strip():
        raise BadInput("reason", "is missing. Give a reason for the audit log.")
    if SharedLink.objects.filter(pk=link.pk, ended_at=None).update(ended_at=now):
        link.ended_at = now
        audit_log.record(actor, "link.end", str(link), reason=reason.strip(), before=describe_link(link))


def open_at(now: datetime) -> QuerySet[SharedLink]:
    """Return the active links, the newest first."""
    return SharedLink.objects.filter(ended_at=None, expires_at__gt=now).order_by("-pk")


def list_links(actor: Actor, now: datetime) -> QuerySet[SharedLink]:
    """Return the active links for users who may share: an address shows the whole plant. Raises `PermissionDenied`."""
    require_permission(actor, "link.make")
    return open_at(now)


def may_share(actor: Actor) -> bool:
    """Return whether the actor may create links, and see their addresses."""
    return actor.may("link.make") and actor.can_access_queues(None)


def format_link_address(link: SharedLink) -> str:
    """Return the address, without the host."""
    return reverse("shared-link", args=[Signer(salt=SALT).sign(str(link.pk))])


def open_link(signed: str, now: datetime) -> SharedLink | None:
    """Return what a link opens; None if it never existed, expired, or was ended."""
    try:
        number = parsing.parse_digits(Signer(salt=SALT).unsign(signed))
    except BadSignature:
        return None
    return None if number is None else open_at(now).filter(pk=number).first()


def describe_link(link: SharedLink) -> dict[str, Any]:
    """Return a link as JSON, its times as text, without its address, which would give access to the plant."""
    return {
        "id": link.pk,
        "at": link.at.isoformat(),
        "reason": link.reason,
        "author": link.author,
        "created_at": link.created_at.isoformat(),
        "expires_at": link.expires_at.isoformat(),
    }


def _check(at: datetime, hours: float, reason: str, now: datetime) -> None:
    if not reason:
        raise BadInput("reason", "is missing. Say who you share the link with, and why.")
    if len(reason) > MAX_REASON:
        raise BadInput("reason", f"must have at most {MAX_REASON} characters.")
    if not 0 < hours <= MAX_HOURS:
        raise BadInput("hours", f"must be more than 0 and at most {MAX_HOURS:g} (7 days).")
    if at > now:
        raise BadInput("at", "is in the future. A link shows the past.")
    if snapshot_at(settings.WEIR_DATA, at.timestamp()) is None:
        raise BadInput("at", "is a time without a snapshot. Choose another time on the timeline.")
    if open_at(now).count() >= MAX_OPEN:
        raise BadInput("at", (f"exceeds the limit: {MAX_OPEN} links are active. End a link on the timeline first."))
