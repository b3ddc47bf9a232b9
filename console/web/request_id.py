"""An id for each request: in the answer's header, the log, and the audit log.

Only a trusted proxy may set it. Others could give many requests one id, or another request's.
"""

import re
import uuid

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from common import logs
from console.web.proxies import is_via_trusted_proxy
from console.web.web_request import get_web_request

HEADER = "X-Request-ID"
GOOD = re.compile(r"[\w.:-]{8,64}\Z", re.ASCII)


class RequestId(MiddlewareMixin):
    """Middleware that sets `request.request_id`, which log lines also contain.

    It accepts a trusted proxy's id if well formed.
    """

    def process_request(self, request: HttpRequest) -> None:
        given = request.headers.get(HEADER, "") if is_via_trusted_proxy(request) else ""
        request_id = given if GOOD.match(given) else uuid.uuid4().hex
        get_web_request(request).request_id = request_id
        logs.begin(request=request_id)

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        logs.begin()
        response.headers.setdefault(HEADER, getattr(request, "request_id", ""))
        return response
