"""Authentication of the API: a token, or the session of a logged-in user."""

from django.http import HttpRequest
from django.utils import timezone
from ninja.errors import AuthenticationError, HttpError
from ninja.security import HttpBearer
from ninja.utils import check_csrf

from console.accounts import authentication, submissions
from console.accounts.access import Actor, actor_of, add_request_id, admit, claim_place, parse_bearer_secret
from console.api.request.refusals import RefusedError
from console.web.refusal import RequestRefused
from console.web.web_request import get_web_request

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class Caller(HttpBearer):
    """Sets `request.auth`, an Actor.

    A session needs the CSRF token to change anything; an API token does not, since no browser attaches it
    automatically. A wrong header never falls back to the session.
    """

    def __call__(self, request: HttpRequest) -> Actor:
        if (local := getattr(request, "weir_local_actor", None)) is not None:
            # manage.py weir, in this process: no external request has the attribute.
            actor: Actor = local
            return actor
        header = request.headers.get("Authorization")
        return self.authenticate_token(request, header) if header is not None else self.authenticate_session(request)

    def authenticate(self, request: HttpRequest, token: str | None) -> Actor | None:
        address, request_id = request.META.get("REMOTE_ADDR"), getattr(request, "request_id", "")
        try:
            actor = authentication.authenticate_token(token, timezone.now(), address, request_id)
            if actor is not None:
                claim_place(getattr(request, "scope", {}), actor.user)
        except authentication.TooManyFailures as error:
            raise RefusedError(429, "authorization", str(error), error.seconds) from None
        except RequestRefused as refusal:
            raise RefusedError(refusal.status, "request", refusal.message, refusal.retry_after_seconds) from None
        return actor

    def authenticate_token(self, request: HttpRequest, header: str) -> Actor:
        actor = self.authenticate(request, parse_bearer_secret(header))
        if actor is None:
            message = "The token is unknown, expired, or revoked. Create one in Settings or with manage.py token."
            raise AuthenticationError(message=message)
        return actor

    def authenticate_session(self, request: HttpRequest) -> Actor:
        if not request.user.is_authenticated:
            raise AuthenticationError(message="Send a token (Authorization: Bearer …) or log in.")
        if request.method not in SAFE_METHODS and check_csrf(request) is not None:
            raise HttpError(403, "The CSRF token is missing or wrong. Send X-CSRFToken, or use an API token.")
        return actor_of(request)


def actor_for(request: HttpRequest, action: str) -> Actor:
    """Return the caller if its role may do `action`; raise `PermissionDenied` (403) otherwise.

    The action checks whether it may be done to this queue (`console.accounts.access.demand`). A repeated idempotency
    key is answered here, after authorization.
    """
    actor = add_request_id(request, get_web_request(request).auth)
    admit(actor, action)
    submissions.once(request, actor)
    return actor
