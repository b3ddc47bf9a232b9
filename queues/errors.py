"""What can go wrong, in one hierarchy. Commands print a `WeirError` in one line; `BadInput` exits 2."""


class WeirError(Exception):
    """Base of everything Weir raises on purpose."""


class BadInput(WeirError, ValueError):  # noqa: N818
    """Input that is refused: `field` names what is wrong, `message` what it takes. Nothing was changed."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.field, self.message)


class Forbidden(BadInput):
    """Input that reaches for what its author must not have: a file, a function, more time or memory than it
    may take. Refused as bad input is, and audited where it came from a person or a token.
    """


class RateLimited(BadInput):
    """Input that came too often: nothing was done, and it may be sent again after `seconds`."""

    def __init__(self, field: str, message: str, seconds: int) -> None:
        super().__init__(field, message)
        self.seconds = seconds

    def __reduce__(self) -> tuple[type, tuple[str, str, int]]:  # type: ignore[override]
        return RateLimited, (self.field, self.message, self.seconds)


class UnknownQueue(BadInput):
    """A queue that the topology does not have."""


class MalformedEvent(BadInput):
    """An event that cannot be read: `field` is the event's field."""


class BadTopology(BadInput):
    """A topology, or a change of it, that breaks a rule of nodes, queues or points."""


class NodeUnavailable(WeirError):  # noqa: N818
    """A node did not answer, or answered wrongly: what was asked may or may not have happened."""


class NodeFull(WeirError):  # noqa: N818
    """A node refused a write for lack of memory: nothing of it was stored."""


class NoContainerAvailable(WeirError):  # noqa: N818
    """No container of a queue takes blocks now. `stored` says what was stored before (`client.Published`)."""

    def __init__(self, message: str, stored: object = None) -> None:
        super().__init__(message)
        self.stored = stored


class QueuePaused(WeirError):  # noqa: N818
    """A person has paused the queue's intake: nothing was stored. Publish again after `retry_seconds`."""

    def __init__(self, queue: str, reason: str, retry_seconds: int) -> None:
        super().__init__(
            f"Intake of {queue} is paused for {retry_seconds} s more: {reason} "
            "Nothing of this was stored; publish it again then."
        )
        self.queue, self.reason, self.retry_seconds = queue, reason, retry_seconds

    def __reduce__(self) -> tuple[type, tuple[str, str, int]]:
        return type(self), (self.queue, self.reason, self.retry_seconds)


# What the system says of a connection, with a number before it or an address behind (`[Errno 111] Connection
# refused`), and what a page says.
CONNECTION_REASONS = {
    "connection refused": "nothing listens at its port",
    "no route to host": "there is no route to its host",
    "network is unreachable": "there is no route to its network",
    "connection reset by peer": "it ends the connection",
    "broken pipe": "it ends the connection",
    "timed out": "it took too long",
    "timeout": "it took too long",
    "name or service not known": "no such host is known",
    "no address associated with hostname": "no such host is known",
    "temporary failure in name resolution": "the name of its host can't be resolved at present",
}
MOST_CHARACTERS = 200


def connection_reason(error: object) -> str:
    """Why a server can't be reached, in plain words, whichever client found it out."""
    text = (str(error).strip() or type(error).__name__).lower()
    plain = (words for system, words in CONNECTION_REASONS.items() if system in text)
    return next(plain, first_line(error))


def first_line(error: object) -> str:
    """Of what an error says, such as a server's own words; its kind, where it says nothing."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:MOST_CHARACTERS].rstrip(".")
