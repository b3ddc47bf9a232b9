"""Limits of open sockets for a person, and for a process."""

from typing import Any
from weakref import WeakKeyDictionary

from django.conf import settings

TRY_LATER = 1013
TOO_MANY = 4429


class NoPlace(Exception):  # noqa: N818
    """A limit is reached: the close code, and the reason in words."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class Places:
    """The open sockets of this process, each with its person (None: not known yet)."""

    def __init__(self) -> None:
        self._holders: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def enter(self, socket: Any) -> None:
        """Take a place in the process, before anything else is done for the socket. Raises `NoPlace`."""
        limit = settings.WEIR_LIVE_SOCKETS
        if len(self._holders) >= limit:
            raise NoPlace(TRY_LATER, f"This console has {limit} live connections, the maximum; try again later.")
        self._holders[socket] = None

    def claim(self, socket: Any, person: Any) -> None:
        """Assign the socket to this person. Raises `NoPlace`."""
        limit = settings.WEIR_LIVE_SOCKETS_PER_PERSON
        if sum(holder == person for holder in self._holders.values()) >= limit:
            raise NoPlace(TOO_MANY, f"You have {limit} live connections, the maximum; close a page.")
        self._holders[socket] = person

    def leave(self, socket: Any) -> None:
        self._holders.pop(socket, None)


PLACES = Places()  # of this process
