"""The sessions of users: shown on the settings page, and ended from there."""

from datetime import datetime, timedelta
from typing import Any, cast

from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.db import transaction
from django.db.models import QuerySet
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from console.accounts.access import CONFIRMED_AT, Actor, claim_place, require_permission
from console.audit import audit_log
from console.models import Session, UserSession
from console.storage.session_store import SessionStore, compute_idle_cutoff
from console.web.refusal import RequestRefused
from workers.steering import plant_settings

STEP = timedelta(minutes=1)  # how often the use of a session is recorded, not with each request
READING = ("GET", "HEAD", "OPTIONS")


@receiver(user_logged_in)
def _began(sender: object, request: HttpRequest | None, user: User, **named: object) -> None:
    """Limit a login to the configured time, and record it at once: a session without a row has no user."""
    UserSession.objects.filter(user=user).exclude(
        pk__in=list_active_sessions(user).values("pk")
    ).delete()  # ended long ago
    SessionStore.clear_expired()
    if request is None:
        return
    now = timezone.now()
    request.session.set_expiry(timedelta(hours=plant_settings.get_setting_value("session.hours")))
    request.session[CONFIRMED_AT] = now.timestamp()
    if request.session.session_key is None:
        request.session.create()
    UserSession.objects.update_or_create(
        digest=digest_of(request),
        defaults=_record_visit(request, now),
        create_defaults={**_record_visit(request, now), "user": user, "created_at": now},
    )


def digest_of(request: HttpRequest) -> str:
    """Return the name of the row of a request's session; "" while it has no key."""
    return cast(SessionStore, request.session).digest


class SeenSessions(MiddlewareMixin):
    """Counts requests of logged-in users, and records once a minute where they are logged in.

    Automatic requests of an open page don't count as use.
    """

    def process_view(self, request: HttpRequest, *view: object) -> HttpResponse | None:
        if request.user.is_authenticated:
            try:
                claim_place(getattr(request, "scope", {}), request.user)
            except RequestRefused as refusal:
                headers = {"Retry-After": str(refusal.retry_after_seconds)}
                return HttpResponse(refusal.message, status=refusal.status, headers=headers, content_type="text/plain")
        self._note(request)
        return None

    def _note(self, request: HttpRequest) -> None:
        row, now = getattr(request.session, "row", None), timezone.now()
        if row is None or not request.user.is_authenticated or not is_by_hand(request):
            return
        if now - row.seen_at >= STEP or row.address is None:
            UserSession.objects.filter(pk=row.pk).update(**_record_visit(request, now))


def is_by_hand(request: HttpRequest) -> bool:
    """Return whether a person did this: opened a page or sent something.

    The scripts of an open page read the API, and reload parts of the page.
    """
    by_script = "X-Weir-Parts" in request.headers or request.path.startswith("/api/")
    return request.method not in READING or not by_script


def _record_visit(request: HttpRequest, now: datetime) -> dict[str, Any]:
    return {
        "seen_at": now,
        "address": request.META.get("REMOTE_ADDR"),
        "agent": request.headers.get("User-Agent", "")[:200],
    }


def list_active_sessions(of: User | None = None) -> QuerySet[UserSession]:
    """Return active sessions, the last used first; of one user, or of all."""
    now = timezone.now()
    keys = Session.objects.filter(expire_date__gt=now).values("session_key")
    rows = UserSession.objects.filter(digest__in=keys, seen_at__gt=compute_idle_cutoff(now))
    rows = rows.select_related("user").order_by("-seen_at", "-pk")
    return rows if of is None else rows.filter(user=of)


@transaction.atomic
def end(actor: Actor, session: UserSession) -> None:
    """End a session. Users may end their own; user managers, all. Its websocket closes within seconds."""
    require_permission(actor, "account.change" if session.user == actor.user else "user.manage")
    about = {"since": session.created_at.isoformat(), "address": session.address, "agent": session.agent}
    audit_log.record(actor, "session.end", session.user.get_username(), before=about)
    _delete(session)


def rename(before: str, after: str) -> None:
    """Record that a session got another key. Both are digests."""
    UserSession.objects.filter(digest=before).update(digest=after)


def end_all(user: User, but: str = "") -> None:
    """End all sessions of a user, except the session of that digest."""
    for row in UserSession.objects.filter(user=user).exclude(digest=but):
        _delete(row)


def _delete(row: UserSession) -> None:
    Session.objects.filter(session_key=row.digest).delete()
    row.delete()
