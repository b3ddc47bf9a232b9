"""Idempotency: a change that is sent again with the same key gets its first answer.

The key is the header `Idempotency-Key` (pages and scripts choose one for each submission), or the field `submission` of
a form without a script. It belongs to its sender, and is checked only after authentication and authorization, so that
an answer never goes to a user whose token or role has ended. A key that is used again with another request is rejected
(422). A rejected request frees the key; a process that dies in the middle leaves it taken, since its progress is
unknown. Answers are stored encrypted.
"""

import hashlib
import re
from datetime import timedelta
from typing import Protocol

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import RawPostDataException
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from console.models import ApiToken, Submission
from console.storage import sealing
from console.web.web_request import get_web_request

HEADER, FIELD = "Idempotency-Key", "submission"
GOOD = re.compile(r"[\w.:-]{8,64}\Z", re.ASCII)
RETAINED = timedelta(days=1)
PURPOSE = "answer to a submission"
MAX_CHARACTERS = 64 * 1024
UNCOMPARED_FIELDS = (FIELD, "csrfmiddlewaretoken")
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class Sender(Protocol):
    """The parts of an `Actor` that identify it."""

    @property
    def name(self) -> str: ...

    @property
    def token(self) -> ApiToken | None: ...


class AnsweredError(Exception):
    """The request was sent before, or its key is invalid; contains the answer."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__("answered already")
        self.response = response


class IdempotencyGuard(MiddlewareMixin):
    """Answers a repeated submission with its first answer, and stores first answers."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        return exception.response if isinstance(exception, AnsweredError) else None

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        submission = getattr(request, "weir_submission", None)
        if submission is None:
            return response
        if response.status_code >= 400 or getattr(request, "weir_not_done", False):
            submission.delete()
        else:
            _keep(submission, response)
        return response


def once(request: HttpRequest, actor: Sender) -> None:
    """Take the request's key for this actor, who is authorized.

    Raises `AnsweredError` if it was sent before. Without a key nothing is stored.
    """
    key = key_of(request)
    if request.method != "POST" or not key or hasattr(request, "weir_submission"):
        return
    if not GOOD.match(key):
        raise AnsweredError(
            build_error_response(422, "must have 8 to 64 letters, digits, dots, colons, hyphens, and underscores.")
        )
    fingerprint = fingerprint_of(request)
    now, who = timezone.now(), f"token:{actor.token.digest}" if actor.token else f"user:{actor.name}"
    Submission.objects.filter(at__lt=now - RETAINED).delete()
    row, made = Submission.objects.get_or_create(
        actor=who, key=key, defaults={"path": request.path[:300], "fingerprint": fingerprint, "at": now}
    )
    if not made:
        raise AnsweredError(_replay_response(row, request, fingerprint))
    get_web_request(request).weir_submission = row


def key_of(request: HttpRequest) -> str:
    """Return the key, "" if there is none. Bodies that are not forms of pages are left unread."""
    if key := request.headers.get(HEADER, ""):
        return key
    return request.POST.get(FIELD, "") if _is_page_form(request) else ""


def build_error_response(status: int, message: str) -> JsonResponse:
    return JsonResponse({"errors": {HEADER: [message]}}, status=status)


def fingerprint_of(request: HttpRequest) -> str:
    """Return a hash of the request: method, path, query, content type, and content.

    For a page's form the fields count, since browsers encode the same fields differently each time.
    """
    digest = hashlib.sha256()
    query = request.META.get("QUERY_STRING", "")
    for part in (request.method, request.path, query, request.content_type):
        _add(digest, str(part).encode())
    try:
        if _is_page_form(request):
            _add_form(digest, request)
        else:
            _add(digest, request.body)
    except RawPostDataException:  # the check of the CSRF token has read the form
        _add_form(digest, request)
    return digest.hexdigest()


def _is_page_form(request: HttpRequest) -> bool:
    return request.content_type in FORMS and not hasattr(request, "auth")  # the API has set the actor


def _add_form(digest: "hashlib._Hash", request: HttpRequest) -> None:
    for name, values in sorted(request.POST.lists()):
        if name not in UNCOMPARED_FIELDS:
            _add(digest, b"field", *(part.encode() for part in (name, *values)))
    for name, files in sorted(request.FILES.lists()):
        for file in files:
            _add(digest, b"file", name.encode(), (file.name or "").encode(), *file.chunks())
            file.seek(0)


def _add(digest: "hashlib._Hash", *parts: bytes) -> None:
    """Add the parts with their lengths, so that boundaries are unambiguous."""
    digest.update(f"{len(parts)}:".encode())
    for part in parts:
        digest.update(f"{len(part)}:".encode() + part)


def _replay_response(found: Submission, request: HttpRequest, fingerprint: str) -> HttpResponse:
    if found.path != request.path[:300] or found.fingerprint not in ("", fingerprint):
        return build_error_response(422, f"{found.key} was used for another request. Choose a new key for each change.")
    if found.status is None:
        return build_error_response(
            409, "belongs to a request that is in progress or whose process exited. Check whether the change was made."
        )
    if not found.content_type:
        return build_error_response(409, "was already used. Its response is shown only once.")
    try:
        body = sealing.unseal(found.body, PURPOSE, f"{found.actor} {found.key}")
    except sealing.UnsealableError:
        return build_error_response(409, "was already used. Its response is no longer stored.")
    response = HttpResponse(body, status=found.status, content_type=found.content_type)
    if found.location:
        response["Location"] = found.location
    response["Idempotent-Replay"] = "true"
    return response


def _keep(found: Submission, response: HttpResponse) -> None:
    """Store the answer, except for a secret that is shown once."""
    found.status = response.status_code
    found.location = response.headers.get("Location", "")[:500]
    shown_once = response.streaming or "no-store" in response.headers.get("Cache-Control", "")
    if not shown_once and len(response.content) <= MAX_CHARACTERS:
        found.content_type = response.headers.get("Content-Type", "text/plain")[:100]
        found.body = sealing.seal(response.content, PURPOSE, f"{found.actor} {found.key}")
    found.save()
