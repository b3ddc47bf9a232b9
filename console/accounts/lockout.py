"""Failed logins are counted separately: by account and address, by address, and by account.

| counted by | failures within 15 minutes | then |
|---|---|---|
| account and address | 5 | that address waits before it tries this account again |
| address, for all accounts | 10 | that address waits |
| account, from any address | 20 | the account waits, except for addresses from which it recently logged in |

Each lockout ends when its failures are 15 minutes old; attempts in the meantime don't extend it. Users who are logged
in stay logged in. An attacker therefore can't lock users out of their usual places.
"""

from datetime import timedelta
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.models import AccessLog
from django.contrib.auth.models import User
from django.db.models import Sum
from django.http import HttpRequest
from django.utils import timezone

from console.accounts.access import Actor
from console.audit import audit_log, refusals
from console.connections.client_addresses import normalize_address
from console.web.web_request import get_web_request

AT_ADDRESS, OF_ADDRESS, OF_ACCOUNT = 5, 10, 20  # in the order of settings.AXES_LOCKOUT_PARAMETERS
KNOWN_FOR = timedelta(days=30)
UNKNOWN = "unknown"
MAX_NAME = 255  # limits of the library's tables


class LockoutHandler(AxesDatabaseHandler):  # type: ignore[misc] # django-axes has no types
    """django-axes' handler with a limit for each count, and audit entries."""

    def get_failures(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        """Return the failures at this address, or AT_ADDRESS once any of the limits is reached."""
        at_address, of_address, of_account = (
            attempts.aggregate(count=Sum("failures_since_start"))["count"] or 0
            for attempts in self.get_user_attempts(request, credentials)
        )
        if of_address >= OF_ADDRESS or (of_account >= OF_ACCOUNT and not _is_known(request, credentials)):
            return max(AT_ADDRESS, at_address)
        return at_address

    def user_login_failed(
        self, sender: object, credentials: dict[str, Any], request: HttpRequest | None = None, **more: object
    ) -> None:
        was_locked = bool(getattr(request, "axes_locked_out", False))
        super().user_login_failed(sender, credentials, request, **more)
        if request is None:
            return
        actor = _find_user(request, credentials)
        if was_locked:  # folded, so that repeated attempts can't fill the audit log
            why = "too many failed logins"
            refusals.note(refusals.Refusal(actor.name, "login", actor.name, why, actor.address, actor.request_id))
            return
        audit_log.record(actor, "login.failed", actor.name)
        if get_web_request(request).axes_locked_out:
            audit_log.record(actor, "login.locked", actor.name, reason="Too many failed logins.")

    def user_logged_in(self, sender: object, request: HttpRequest, user: User, **more: object) -> None:
        super().user_logged_in(sender, request, user, **more)
        AccessLog.objects.filter(attempt_time__lt=timezone.now() - KNOWN_FOR).delete()


def counted_client(request: HttpRequest) -> str | None:
    """Return the address for which a login counts."""
    return normalize_address(request.META.get("REMOTE_ADDR")) or None


def normalize_name(request: HttpRequest, credentials: dict[str, Any] | None = None) -> str | None:
    """Return the name for which a login counts, truncated to the size of its column."""
    name = (credentials or request.POST).get("username")
    return None if name is None else str(name)[:MAX_NAME]


def _find_user(request: HttpRequest, credentials: dict[str, Any]) -> Actor:
    """Return the account of an attempt. Unknown names are not recorded: people type passwords into that field."""
    name = str(credentials.get("username") or "")
    known = User.objects.filter(username=name).exists()
    address, request_id = request.META.get("REMOTE_ADDR"), getattr(request, "request_id", "")
    return Actor(name=name if known else UNKNOWN, role=None, address=address, request_id=request_id)


def _is_known(request: HttpRequest, credentials: dict[str, Any] | None) -> bool:
    """Return whether the account has recently logged in from this address."""
    name = (credentials or {}).get("username")
    address = get_web_request(request).axes_ip_address
    logins = AccessLog.objects.filter(username=name, ip_address=address)
    return bool(logins.filter(attempt_time__gte=timezone.now() - KNOWN_FOR).exists())
