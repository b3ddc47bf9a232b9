"""The security headers of every answer: permitted content, framing, and caching."""

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # Plotly sets styles
        "img-src 'self' data:",
        "connect-src 'self'",  # covers the websocket of the same origin (CSP level 3)
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
# No page of ours needs a device; this also covers features that browsers add later.
UNUSED_FEATURES = (
    "accelerometer",
    "autoplay",
    "bluetooth",
    "browsing-topics",
    "camera",
    "display-capture",
    "encrypted-media",
    "geolocation",
    "gyroscope",
    "hid",
    "idle-detection",
    "local-fonts",
    "magnetometer",
    "microphone",
    "midi",
    "payment",
    "picture-in-picture",
    "screen-wake-lock",
    "serial",
    "storage-access",
    "usb",
    "xr-spatial-tracking",
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Permissions-Policy": ", ".join(f"{feature}=()" for feature in UNUSED_FEATURES),
    "Cross-Origin-Resource-Policy": "same-origin",
    # No browser and no proxy stores a page: after a logout the Back button shows nothing, and nothing stays
    # on a shared computer's disk. Static files never get here.
    "Cache-Control": "no-store",
}


class ResponseHeaders(MiddlewareMixin):
    """Middleware that sets the response headers.

    It runs outside of middleware that depends on a view's own Cache-Control (`console.accounts.submissions`).
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if "no-store" not in response.headers["Cache-Control"]:
            response.headers["Cache-Control"] = f"{response.headers['Cache-Control']}, no-store"
        return response
