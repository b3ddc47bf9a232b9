"""HEAD for the API's addresses: the answer of a GET, without its body."""

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from console.web.web_request import get_web_request

PLACES = ("/api/", "/control/")


class HeadOfTheApi(MiddlewareMixin):
    """Handles HEAD as GET, since the API only declares GET.

    Streamed pieces are not made (`console.actions.exports`).
    """

    def process_request(self, request: HttpRequest) -> None:
        if request.method == "HEAD" and request.path.startswith(PLACES):
            get_web_request(request).weir_head = True
            request.method = "GET"

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponseBase:
        if not getattr(request, "weir_head", False):
            return response
        request.method = "HEAD"
        if not response.streaming:
            response.headers.setdefault("Content-Length", str(len(response.content)))
            response.content = b""
        return response
