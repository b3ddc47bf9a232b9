"""Who is served next when more is asked of the console than it can do at once.

Django gives each request a thread: a thousand requests at once would be a thousand threads, and none of them
would get anywhere. So a process works at AT_ONCE of them, and the others wait in lines:

| line | what waits in it | at work at once | waiting | for at most |
|---|---|---|---|---|
| people | pages, and what is done on them | 12 | 128 | 20 s |
| programs | addresses of programs: the API, the control API | 6 | 64 | 5 s |
| events | events that are published by the API | 6 | 64 | 5 s |

People come first, so that the plant can be steered while programs overload it; what is left is for programs.
Where a line is full, or has been waited in for too long, the answer is 429 with Retry-After (503 for a page).
How the console itself is (`WATCHED`) is answered at once, always. Each line is first come, first served.

A request takes its place when all of it has arrived: who sends slowly holds up nobody. It gives it back when
all of its answer is sent.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from console.web.problem import PROGRAM_PAGES, PROGRAM_PATHS
from console.web.refusal import RequestRefused, refuse

AT_ONCE = 12
WATCHED = PROGRAM_PAGES
EVENTS_OF = ("/api/v1/queues/", "/events")


@dataclass(frozen=True)
class Line:
    """at_work: of it at once; waiting: at most; status: of the answer to who finds no place."""

    name: str
    at_work: int
    waiting: int
    patience_seconds: float
    status: int = 429


# The first comes first.
LINES = (Line("people", 12, 128, 20.0, 503), Line("programs", 6, 64, 5.0), Line("events", 6, 64, 5.0))


def line_of(scope: dict[str, Any]) -> str:
    """The name of the line that a request waits in."""
    path: str = scope["path"]
    if scope["method"] == "POST" and path.startswith(EVENTS_OF[0]) and path.endswith(EVENTS_OF[1]):
        return "events"
    return "programs" if path.startswith(PROGRAM_PATHS) else "people"


class Admission:
    """Wraps an application; one a process, as its event loop is."""

    def __init__(self, application: Any, lines: Sequence[Line] = LINES, at_once: int = AT_ONCE) -> None:
        self.application, self.at_once = application, at_once
        self.lines = {line.name: line for line in lines}
        self.at_work: Counter[str] = Counter()
        self.waiting: dict[str, deque[_Place]] = {line.name: deque() for line in lines}
        self.refused: Counter[str] = Counter()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] in WATCHED:
            await self.application(scope, receive, send)
            return
        place = _Place(self, self.lines[line_of(scope)])
        try:
            await self.application(scope, place.before(receive), send)
        except RequestRefused as refusal:
            await refuse(scope, send, refusal)
        finally:
            place.leave()

    def has_room(self, line: Line) -> bool:
        """Whether one more of a line may be worked at."""
        return self.at_work.total() < self.at_once and self.at_work[line.name] < line.at_work

    def let_in(self) -> None:
        """Everybody for whom there is a place now, people first."""
        for name, waiting in self.waiting.items():
            while waiting and self.has_room(self.lines[name]):
                waiting.popleft().take()


@dataclass
class _Place:
    """One request's."""

    admission: Admission
    line: Line
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
        if not waiting and admission.has_room(self.line):
            self.take()
            return
        if len(waiting) >= self.line.waiting:
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
        self.admission.at_work[self.line.name] += 1
        self.free.set()

    def leave(self) -> None:
        """Give it back, to who comes next."""
        if self.taken:
            self.taken = False
            self.admission.at_work[self.line.name] -= 1
            self.admission.let_in()

    def refusal(self) -> RequestRefused:
        self.admission.refused[self.line.name] += 1
        message = (
            f"the console has too much to do: {self.line.waiting} requests like this one wait; try again."
        )
        return RequestRefused(self.line.status, message, retry_after_seconds=1, field="")
