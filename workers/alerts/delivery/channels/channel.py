"""The interface of a channel: it sends one message, or raises `Failed`.

Threads call it, so it doesn't touch the database. Whether a failed message was taken may be unknown, and the same key
is sent again.
"""

from collections.abc import Mapping, Sequence

import httpx

from common import environment as variables
from common.errors import BadInput

TIMEOUT_SECONDS = 10.0


class Failed(Exception):  # noqa: N818
    """The message was not delivered.

    `for_good`: a repetition can't help either. `reached`: marks of those that have it, if the receiver is
    several; the repetition is for the others.
    """

    def __init__(self, why: str, for_good: bool = False, reached: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.for_good, self.reached = for_good, reached


def get_server_name(url: str) -> str:
    """Return the part of an address that an error may quote.

    The rest may be a secret, and alerts quote the error.
    """
    return httpx.URL(url).netloc.decode()


def read_secret_variable(name: str, environment: Mapping[str, str]) -> str:
    """Return the variable's value, "" if it is empty. Raises `Failed` if the value can't be sent."""
    try:
        return variables.read_secret(name, environment)
    except BadInput as error:
        raise Failed(f"{error.field} {error.message}") from None
