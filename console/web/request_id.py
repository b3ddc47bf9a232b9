"""An id for each request: in the answer's header, in the audit, and from a proxy where one gave it."""

import logging
import re
import uuid
from typing import cast

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from console.web.web_request import WebRequest

HEADER = "X-Request-ID"
GOOD = re.compile(r"[\w.:-]{8,64}\Z", re.ASCII)


class RequestId(MiddlewareMixin):
    """Sets `request.request_id`; a proxy's own is taken over when it is one."""

    def process_request(self, request: HttpRequest) -> None:
        given = request.headers.get(HEADER, "")
        cast(WebRequest, request).request_id = given if GOOD.match(given) else uuid.uuid4().hex

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response.headers.setdefault(HEADER, getattr(request, "request_id", ""))
        return response


class LoggedRequest(logging.Filter):
    """Gives every log line `of_request`: " [id]" where a request is what it is about, else nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        request_id = getattr(getattr(record, "request", None), "request_id", "")
        record.of_request = f" [{request_id}]" if request_id else ""
        return True
