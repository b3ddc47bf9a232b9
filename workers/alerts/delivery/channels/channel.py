"""What a channel does: it sends one message, or raises Failed. It is called by threads, so it touches no
database; whether a message that failed was taken may be unknown, and the same key is sent again.
"""

from collections.abc import Mapping, Sequence

import httpx

from queues import environment as variables
from queues.errors import BadInput

TIMEOUT_SECONDS = 10.0


class Failed(Exception):  # noqa: N818
    """It did not arrive. `for_good`: a repetition can't help either. `reached`: marks of those that have it,
    where the receiver is several; the repetition is for the others.
    """

    def __init__(self, why: str, for_good: bool = False, reached: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.for_good, self.reached = for_good, reached


def server_of(url: str) -> str:
    """What an error says of an address: the rest of it may be a secret, and alerts quote the error."""
    return httpx.URL(url).netloc.decode()


def secret_of_variable(name: str, environment: Mapping[str, str]) -> str:
    """What the variable holds, "" for nothing. Raises Failed where that can't be sent."""
    try:
        return variables.secret_named(name, environment)
    except BadInput as error:
        raise Failed(f"{error.field} {error.message}") from None
