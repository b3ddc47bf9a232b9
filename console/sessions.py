"""Where people are logged in: seen on the settings page, and ended from there."""

from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.db import transaction
from django.db.models import QuerySet
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from console import audit
from console.access import Actor, demand
from console.models import UserSession
from workers import plant_settings

SEEN_AT = "weir_seen_at"
STEP = timedelta(minutes=1)  # so often a session that is used is noted; each request would be a write


@receiver(user_logged_in)
def _began(sender: Any, request: HttpRequest | None, user: User, **named: Any) -> None:
    """A login lasts as long as the setting says."""
    UserSession.objects.filter(user=user).exclude(pk__in=alive(user).values("pk")).delete()  # those long over
    if request is not None:
        request.session.set_expiry(timedelta(hours=plant_settings.value("session.hours")))


class SeenSessions(MiddlewareMixin):
    """Notes who is where, once a minute."""

    def process_view(self, request: HttpRequest, *view: Any) -> None:
        if not request.user.is_authenticated or request.session.session_key is None:
            return
        now = timezone.now()
        if now.timestamp() - request.session.get(SEEN_AT, 0.0) >= STEP.total_seconds():
            request.session[SEEN_AT] = now.timestamp()
            _note(request, now)


def _note(request: HttpRequest, now: datetime) -> None:
    seen = {
        "seen_at": now,
        "address": request.META.get("REMOTE_ADDR"),
        "agent": request.headers.get("User-Agent", "")[:200],
        "user": request.user,
    }
    UserSession.objects.update_or_create(
        session_key=request.session.session_key, defaults=seen, create_defaults={**seen, "created_at": now}
    )


def alive(of: User | None = None) -> QuerySet[UserSession]:
    """Sessions that are there still, the last seen first; of one user, or of all."""
    known = import_module(settings.SESSION_ENGINE).SessionStore.get_model_class()
    keys = known.objects.filter(expire_date__gt=timezone.now()).values("session_key")
    rows = UserSession.objects.filter(session_key__in=keys).select_related("user").order_by("-seen_at", "-pk")
    return rows if of is None else rows.filter(user=of)


@transaction.atomic
def end(actor: Actor, session: UserSession) -> None:
    """Log it out: one's own, or anybody's for who manages users. Its websocket follows within seconds."""
    demand(actor, "account.change" if session.user == actor.user else "user.manage")
    import_module(settings.SESSION_ENGINE).SessionStore(session.session_key).delete()
    about = {"since": session.created_at.isoformat(), "address": session.address, "agent": session.agent}
    audit.record(actor, "session.end", session.user.get_username(), before=about)
    session.delete()


def rename(before: str | None, after: str | None) -> None:
    """A session got another key, and is the same."""
    UserSession.objects.filter(session_key=before).update(session_key=after)


def end_all(user: User, but: str | None = None) -> None:
    """Log somebody out everywhere, but for the session of that key."""
    store = import_module(settings.SESSION_ENGINE).SessionStore
    for row in UserSession.objects.filter(user=user).exclude(session_key=but or ""):
        store(row.session_key).delete()
        row.delete()
