"""All errors of Weir in one hierarchy. Commands print a `WeirError` in one line; `BadInput` exits with 2."""


class WeirError(Exception):
    """Base of everything that Weir raises on purpose."""


class BadInput(WeirError, ValueError):  # noqa: N818
    """Rejected input: `field` names what is wrong, `message` what it takes. Nothing was changed."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.field, self.message)


class Forbidden(BadInput):
    """Input that requests what its author must not have: a file, a function, or too much time or memory.

    It is rejected like bad input, and audited if it came from a person or a token.
    """


class RateLimited(BadInput):
    """Input that arrived too often: nothing was done, and it may be sent again after `seconds`."""

    def __init__(self, field: str, message: str, seconds: int) -> None:
        super().__init__(field, message)
        self.seconds = seconds

    def __reduce__(self) -> tuple[type, tuple[str, str, int]]:  # type: ignore[override]
        return RateLimited, (self.field, self.message, self.seconds)


class UnknownQueue(BadInput):
    """A queue that the topology does not have."""


class MalformedEvent(BadInput):
    """An event that can't be read: `field` is the event's field."""


class BadTopology(BadInput):
    """A topology, or a change of it, that breaks a rule for nodes, queues, or points."""


class NodeUnavailable(WeirError):  # noqa: N818
    """A node did not answer, or answered wrongly: the request may or may not have been carried out."""


class ControlUnavailable(NodeUnavailable):
    """The control server did not answer."""


class NodeFull(WeirError):  # noqa: N818
    """A node rejected a write for lack of memory: nothing of it was stored."""


class NoContainerAvailable(WeirError):  # noqa: N818
    """No container of a queue accepts blocks now.

    `stored` says what was stored before (`client.PublishResult`).
    """

    def __init__(self, message: str, stored: object = None) -> None:
        super().__init__(message)
        self.stored = stored


class QueuePaused(WeirError):  # noqa: N818
    """A person has paused the queue's intake: nothing was stored. Publish again after `retry_seconds`."""

    def __init__(self, queue: str, reason: str, retry_seconds: int) -> None:
        super().__init__(
            f"Intake of {queue} is paused for another {retry_seconds} s: {reason} "
            "Nothing was stored. Publish again after the pause."
        )
        self.queue, self.reason, self.retry_seconds = queue, reason, retry_seconds

    def __reduce__(self) -> tuple[type, tuple[str, str, int]]:
        return type(self), (self.queue, self.reason, self.retry_seconds)


class QueueThrottled(WeirError):  # noqa: N818
    """The remedy ladder throttles the queue: nothing was stored. Publish again after `retry_seconds`."""

    def __init__(self, queue: str, retry_seconds: int) -> None:
        super().__init__(f"{queue} is throttled for another {retry_seconds} s. Nothing was stored. Publish again then.")
        self.queue, self.retry_seconds = queue, retry_seconds

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (self.queue, self.retry_seconds)


# The operating system's description of a connection error, with a number before it or an address after it
# (`[Errno 111] Connection refused`), and the text that a page shows.
CONNECTION_REASONS = {
    "connection refused": "no service listens on its port",
    "no route to host": "there is no route to its host",
    "network is unreachable": "there is no route to its network",
    "connection reset by peer": "it closed the connection",
    "broken pipe": "it closed the connection",
    "timed out": "it timed out",
    "timeout": "it timed out",
    "name or service not known": "its hostname is unknown",
    "no address associated with hostname": "its hostname is unknown",
    "temporary failure in name resolution": "its hostname can't be resolved",
}
MAX_CHARACTERS = 200


def describe_connection_error(error: object) -> str:
    """Return why a server can't be reached, in plain words, for any client."""
    text = (str(error).strip() or type(error).__name__).lower()
    plain = (words for system, words in CONNECTION_REASONS.items() if system in text)
    return next(plain, get_first_line(error))


def get_first_line(error: object) -> str:
    """Return the first line of an error, such as a server's own words; its class name if it is empty."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:MAX_CHARACTERS].rstrip(".")
