"""HTTP headers that people enter: their names, and values that a header can have.

A line break in a header would start another header or another request.
"""

import re
from collections.abc import Mapping

from common import checks
from common.errors import BadInput, Forbidden

MAX_HEADERS = 32
MAX_VALUE_CHARACTERS = 4_096
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")  # RFC 9110's token
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?\Z")  # printable ASCII without blanks at either end
# Headers that determine where a request goes and ends, which only the HTTP client sets.
CLIENT_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def check_headers(headers: Mapping[str, str], field: str) -> None:
    """Raise BadInput for a header that cannot be sent, and Forbidden for one that frames the request."""
    if len(headers) > MAX_HEADERS:
        raise BadInput(field, f"must have at most {MAX_HEADERS} headers, not {len(headers):,}.")
    for name, value in headers.items():
        _check_header(name, value, field)


def _check_header(name: str, value: str, field: str) -> None:
    shown = checks.shorten_for_message(name)
    if not _NAME.match(name):
        raise BadInput(field, f"has an invalid header name, {shown}; use letters, digits, and -.")
    if name.lower() in CLIENT_HEADERS:
        raise Forbidden(field, f"sets {shown}, which the HTTP client sets itself; remove it.")
    if len(value) > MAX_VALUE_CHARACTERS:
        raise BadInput(field, f"sets {shown} to {len(value):,} characters; use at most {MAX_VALUE_CHARACTERS:,}.")
    if value and not is_header_value(value):
        raise BadInput(
            field,
            f"sets {shown} to an invalid value; use printable ASCII without line breaks and"
            " without spaces at the ends.",
        )


def is_header_value(value: str) -> bool:
    """Return whether a header can have the value unchanged."""
    return _VALUE.match(value) is not None


def check_header_secret(name: str, secret: str, field: str = "secret_environment") -> None:
    """Raise BadInput for a secret that no header can have: an HTTP library would quote the invalid value."""
    if secret and not is_header_value(secret):
        raise BadInput(
            field,
            f"names {name}, whose value cannot be sent as a header; remove spaces and line breaks at its"
            " ends, and characters other than printable ASCII.",
        )
