"""Attributes that code sets on a request for later code in the same request."""

from typing import Any, cast

from django.http import HttpRequest

from workers.documents.snapshot import Snapshot


class WebRequest(HttpRequest):
    """A type without instances: Django's own request, with attributes set by the modules named here."""

    request_id: str
    """console.web.request_id"""
    weir_head: bool
    """console.web.head: it was a HEAD request."""
    weir_unreadable: tuple[int, Any]
    """console.input.boundary: the status and the BadInput of a body that can't be read."""
    weir_actor: Any
    """console.accounts.access: the Actor of its session."""
    weir_local_actor: Any
    """console.management: the Actor of `manage.py weir`, which asks in its own process."""
    auth: Any
    """ninja: the Actor that console.api.request.authentication gives it."""
    weir_submission: Any
    """console.accounts.submissions: its Submission."""
    weir_not_done: bool
    """console.pages.frame.page: nothing was done, so its key is free."""
    weir_rejected_form: Any
    """console.pages.frame.page: the RejectedForm that its page shows again."""
    weir_snapshot: Snapshot | None
    """console.pages.frame.frame"""
    weir_absence: Any
    """console.pages.frame.frame: the Absence, why there is no snapshot."""
    weir_past: Any
    """console.pages.frame.past: the PastInstant that it asks for, or None."""
    axes_locked_out: bool
    """django-axes"""
    axes_ip_address: str | None
    """django-axes"""


def get_web_request(request: HttpRequest) -> WebRequest:
    """Return the same request, as one with these attributes."""
    return cast(WebRequest, request)
