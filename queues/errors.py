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
