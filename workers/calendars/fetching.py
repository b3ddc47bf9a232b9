"""Download of calendars, within the rules for outgoing connections."""

import httpx

from common.errors import BadInput
from workers.host import egress

TIMEOUT_SECONDS = 10.0
MAX_BYTES = 2_000_000


def fetch_calendar(url: str, field: str) -> bytes:
    """Return the text of the calendar at an address. Raises `BadInput` that names the field, without the address."""
    egress.check_url(url, field)
    try:
        with (
            egress.create_client(TIMEOUT_SECONDS) as client,
            client.stream("GET", url, headers={"Accept": "text/calendar"}) as response,
        ):
            status, text = response.status_code, egress.read(response, MAX_BYTES + 1)
    except httpx.HTTPError as error:
        raise BadInput(field, f"did not respond: {type(error).__name__}.") from None
    if status != 200:
        raise BadInput(field, f"returned HTTP {status}.")
    if len(text) > MAX_BYTES:
        raise BadInput(field, f"returned more than {MAX_BYTES:,} bytes.")
    return text
