"""Whether this process lives."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """This process answers: nothing else is asked."""
    return HttpResponse("ok\n", content_type="text/plain")
