"""The way to the login and back: to the page where somebody was, also when a form was sent from it."""

from urllib.parse import urlsplit

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.utils.http import url_has_allowed_host_and_scheme


class LoginRequired(LoginRequiredMiddleware):
    """After the login one is where one was. The address of a form's target is none to come back to, so a form
    leads back to the page it stands on; what was typed into it is kept by the browser (static/js/drafts.js).
    """

    def handle_no_permission(self, request: HttpRequest, view_func) -> HttpResponse:
        if request.method in ("GET", "HEAD"):
            return super().handle_no_permission(request, view_func)
        came_from = request.headers.get("Referer", "")
        ours = url_has_allowed_host_and_scheme(came_from, {request.get_host()}, request.is_secure())
        page = urlsplit(came_from)
        where = f"{page.path}?{page.query}" if page.query else page.path
        return redirect_to_login(where if ours and where.startswith("/") else "/")
