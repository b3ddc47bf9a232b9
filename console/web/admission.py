"""Who is served next when more is asked of the console than it can do at once.

Django gives each request a thread: a thousand requests at once would be a thousand threads, and none of them
would get anywhere. So a process works at AT_ONCE of them, and the others wait in lines:

| line | what waits in it | at work at once | waiting | for at most |
|---|---|---|---|---|
| people | pages, and what is done on them | 12 | 128 | 20 s |
| programs | addresses of programs: the API, the control API | 6 | 64 | 5 s |
| events | events that are published by the API | 6 | 64 | 5 s |
| files | static files | 16 of their own | 256 | 20 s |
| watched | `/readyz` and `/metrics` | 4 of their own | 32 | 2 s |
| alive | `/healthz` | 4 of their own | 32 | 2 s |

People come first, so that the plant can be steered while programs overload it; what is left is for programs.
Where a line is full, or has been waited in for too long, the answer is 429 with Retry-After (503 for a page).
How the console itself is has lines of its own, so that it can be asked while pages and programs overload it.
Each line is first come, first served, but one client address has OF_ONE of the places at most, and half of a
line: the others' turn comes all the same.

A request takes its place when all of it has arrived: who sends slowly holds up nobody. It gives it back when
all of its answer is sent, or when its reader has taken it too slowly (`console.web.slow_reader`).
"""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.connections.client_addresses import counted_address
from console.web.problem import PROGRAM_PATHS
from console.web.refusal import RequestRefused, refuse
from console.web.slow_reader import PATIENCE_SECONDS, Reader, ReaderLeft

AT_ONCE = 12
OF_ONE = 2 / 3
ALIVE, WATCHED, FILES = "/healthz", ("/readyz", "/metrics"), "/static/"
EVENTS_OF = ("/api/v1/queues/", "/events")
REFUSED = "weir.refused"  # in the scope of a request: how many were refused of each line


@dataclass(frozen=True)
class Line:
    """at_work: of it at once; waiting: at most; status: of the answer to who finds no place; is_apart: its
    places are its own, and none of AT_ONCE.
    """

    name: str
    at_work: int
    waiting: int
    patience_seconds: float
    status: int = 429
    is_apart: bool = False


# The first comes first.
LINES = (
    Line("people", 12, 128, 20.0, 503),
    Line("programs", 6, 64, 5.0),
    Line("events", 6, 64, 5.0),
    Line("files", 16, 256, 20.0, 503, is_apart=True),
    Line("watched", 4, 32, 2.0, 503, is_apart=True),
    Line("alive", 4, 32, 2.0, 503, is_apart=True),
)


def line_of(scope: dict[str, Any]) -> str:
    """The name of the line that a request waits in."""
    path: str = scope["path"]
    if scope["method"] == "POST" and path.startswith(EVENTS_OF[0]) and path.endswith(EVENTS_OF[1]):
        return "events"
    if path.startswith(PROGRAM_PATHS):
        return "programs"
    if path == ALIVE or path in WATCHED:
        return "alive" if path == ALIVE else "watched"
    return "files" if path.startswith(FILES) else "people"


def refused_of(scope: Mapping[str, Any]) -> Mapping[str, int] | None:
    """{line: requests refused since this process began}; None for a request that came past the lines."""
    refused: Mapping[str, int] | None = scope.get(REFUSED)
    return refused


class Admission:
    """Wraps an application; one a process, as its event loop is."""

    def __init__(
        self,
        application: Any,
        lines: Sequence[Line] = LINES,
        at_once: int = AT_ONCE,
        reading_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.application, self.at_once, self.reading_seconds = application, at_once, reading_seconds
        self.lines = {line.name: line for line in lines}
        self.beside = tuple(line.name for line in lines if not line.is_apart)  # they share AT_ONCE
        self.at_work: Counter[str] = Counter()
        self.at_work_of: Counter[tuple[str, str]] = Counter()  # of a line, for a client
        self.waiting: dict[str, deque[_Place]] = {line.name: deque() for line in lines}
        self.refused = Counter(dict.fromkeys(self.lines, 0))

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        place = _Place(self, self.lines[line_of(scope)], counted_address((scope.get("client") or ("",))[0]))
        try:
            known = {**scope, REFUSED: self.refused}
            await self.application(known, place.before(receive), Reader(send, self.reading_seconds).send)
        except RequestRefused as refusal:
            await refuse(scope, send, refusal)
        except ReaderLeft:
            return  # the server closes the connection of an answer that is not whole
        finally:
            place.leave()

    def has_room(self, line: Line, client: str = "") -> bool:
        """Whether one more of a line may be worked at, for this client."""
        places: list[tuple[tuple[str, ...], int]] = [((line.name,), line.at_work)]
        if not line.is_apart:
            places.append((self.beside, self.at_once))
        return all(
            sum(self.at_work[name] for name in names) < most
            and (not client or sum(self.at_work_of[name, client] for name in names) < _of_one(most))
            for names, most in places
        )

    def let_in(self) -> None:
        """Everybody for whom there is a place now, people first."""
        for name, waiting in self.waiting.items():
            for place in list(waiting):
                if self.has_room(self.lines[name], place.client):
                    waiting.remove(place)
                    place.take()


def _of_one(places: int) -> int:
    return math.ceil(places * OF_ONE)


@dataclass(eq=False)
class _Place:
    """One request's."""

    admission: Admission
    line: Line
    client: str
    taken: bool = False
    free: asyncio.Event = field(default_factory=asyncio.Event)

    def before(self, receive: Any) -> Any:
        """`receive`, but what completes the request is handed on when there is a place for it."""

        async def received() -> dict[str, Any]:
            message: dict[str, Any] = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False) and not self.taken:
                await self.found()
            return message

        return received

    async def found(self) -> None:
        """Wait until there is one. Raises RequestRefused."""
        admission, waiting = self.admission, self.admission.waiting[self.line.name]
        if admission.has_room(self.line, self.client):  # who waits now has none
            self.take()
            return
        of_client = sum(each.client == self.client for each in waiting) if self.client else 0
        if len(waiting) >= self.line.waiting or of_client >= math.ceil(self.line.waiting / 2):
            raise self.refusal()
        waiting.append(self)
        try:
            async with asyncio.timeout(self.line.patience_seconds):
                await self.free.wait()
        except TimeoutError:
            # It may have been let in at that very instant.
            if not self.taken:
                raise self.refusal() from None
        finally:
            if not self.taken:
                waiting.remove(self)

    def take(self) -> None:
        self.taken = True
        self._count(1)
        self.free.set()

    def leave(self) -> None:
        """Give it back, to who comes next."""
        if self.taken:
            self.taken = False
            self._count(-1)
            self.admission.let_in()

    def _count(self, places: int) -> None:
        admission, key = self.admission, (self.line.name, self.client)
        admission.at_work[self.line.name] += places
        admission.at_work_of[key] += places
        if not admission.at_work_of[key]:
            del admission.at_work_of[key]  # there are more addresses than memory

    def refusal(self) -> RequestRefused:
        self.admission.refused[self.line.name] += 1
        waiting = len(self.admission.waiting[self.line.name])
        message = f"the console has too much to do: {waiting} requests like this one wait; try again."
        return RequestRefused(self.line.status, message, retry_after_seconds=1, field="")
