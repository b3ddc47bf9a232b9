"""What was sent already is not done again: a change under a key gets its first answer whenever it comes.

The key is the header `Idempotency-Key` (pages and scripts choose one for each submission), or the field
`submission` of a form without a script. It belongs to who sends it. A refusal frees the key; a process that
dies in the middle leaves it taken, since nobody knows how far it came.
"""

import hashlib
import re
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from console.models import Submission

HEADER, FIELD = "Idempotency-Key", "submission"
GOOD = re.compile(r"[\w.:-]{8,64}\Z", re.ASCII)
KEPT = timedelta(days=1)
MOST_CHARACTERS = 64 * 1024
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class OnceOnly(MiddlewareMixin):
    """Answers a repeated submission with its first answer."""

    def process_view(self, request: HttpRequest, view: Any, args: Any, named: Any) -> HttpResponse | None:
        who, key = sender_of(request), key_of(request)
        if request.method != "POST" or not key or who is None:
            return None
        if not GOOD.match(key):
            return refusal(422, "takes 8 to 64 letters, digits, dots, colons, - and _.")
        now = timezone.now()
        Submission.objects.filter(at__lt=now - KEPT).delete()
        found, made = Submission.objects.get_or_create(
            actor=who, key=key, defaults={"path": request.path[:300], "at": now}
        )
        if made:
            request.weir_submission = found
            return None
        return _again(found, request)

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        found = getattr(request, "weir_submission", None)
        if found is None:
            return response
        if response.status_code >= 400:
            found.delete()
        else:
            _keep(found, response)
        return response


def sender_of(request: HttpRequest) -> str | None:
    """Whose keys they are: a token's by its digest, a person's by name; None for nobody."""
    if header := request.headers.get("Authorization"):
        return f"token:{hashlib.sha256(header.encode()).hexdigest()}"
    return f"user:{request.user.get_username()}" if request.user.is_authenticated else None


def key_of(request: HttpRequest) -> str:
    """The key, "" when there is none. Bodies that are no forms are left unread."""
    if key := request.headers.get(HEADER, ""):
        return key
    return request.POST.get(FIELD, "") if request.content_type in FORMS else ""


def refusal(status: int, message: str) -> JsonResponse:
    return JsonResponse({"errors": {HEADER: [message]}}, status=status)


def _again(found: Submission, request: HttpRequest) -> HttpResponse:
    if found.path != request.path[:300]:
        return refusal(422, "was used for another change; choose a new one for each.")
    if found.status is None:
        return refusal(409, "is being carried out, or its process died; look whether it was done.")
    if not found.content_type:
        return refusal(409, "was carried out; what it answered is shown once only.")
    response = HttpResponse(found.body, status=found.status, content_type=found.content_type)
    if found.location:
        response["Location"] = found.location
    response["Idempotent-Replay"] = "true"
    return response


def _keep(found: Submission, response: HttpResponse) -> None:
    """Remember the answer; a secret that is shown once is not written down."""
    found.status = response.status_code
    found.location = response.headers.get("Location", "")[:500]
    shown_once = response.streaming or "no-store" in response.headers.get("Cache-Control", "")
    if not shown_once and len(response.content) <= MOST_CHARACTERS:
        found.content_type = response.headers.get("Content-Type", "text/plain")[:100]
        found.body = response.content.decode()
    found.save()
