"""An id for each request: in the answer's header, in the audit, and from a proxy where one gave it."""

import re
import uuid
from typing import cast

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from console.web.web_request import WebRequest
from queues import logs

HEADER = "X-Request-ID"
GOOD = re.compile(r"[\w.:-]{8,64}\Z", re.ASCII)


class RequestId(MiddlewareMixin):
    """Sets `request.request_id`, also for what is logged; a proxy's own is taken over when it is one."""

    def process_request(self, request: HttpRequest) -> None:
        given = request.headers.get(HEADER, "")
        request_id = given if GOOD.match(given) else uuid.uuid4().hex
        cast(WebRequest, request).request_id = request_id
        logs.begin(request=request_id)

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        logs.begin()
        response.headers.setdefault(HEADER, getattr(request, "request_id", ""))
        return response
