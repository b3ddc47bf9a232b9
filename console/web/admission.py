"""Admission of requests: which are served next when the console is overloaded.

Django gives each request a thread: a thousand requests at once would be a thousand threads, and none of them would
finish. A process therefore handles AT_ONCE of them, and the others wait in lines:

| line | requests | at work at once | waiting | for at most |
|---|---|---|---|---|
| people | pages and their actions | 12 | 128 | 20 s |
| programs | addresses of programs: the API, the control API | 6 | 64 | 5 s |
| events | events that are published by the API | 6 | 64 | 5 s |
| exports | downloads that are made while they are read | 4 of their own | 16 | 5 s |
| files | static files | 16 of their own | 256 | 20 s |
| watched | `/readyz` and `/metrics` | 4 of their own | 32 | 2 s |
| alive | `/healthz` | 4 of their own | 32 | 2 s |

People come first, so that they can control the plant while programs overload it; programs get the rest. If a line is
full, or a request has waited in it for too long, the answer is 429 with Retry-After (503 for a page). Health and
metrics have their own lines, so that they answer while pages and programs overload the console. Each line is first
come, first served, but one client address has at most OF_ONE of the places, and half of a line, so that others get
their turn. The same applies to one person, whatever addresses, sessions, and tokens they use. The person of a request
is known only after Django has looked up its session or token, so a process remembers the person of each credential. The
first request of a credential is counted for its person when that is known (`claim`), and is then rejected if the person
has too many.

A request takes its place when it has arrived completely: slow senders block nobody. It releases the place when its
answer is sent completely, or when its reader is too slow (`console.web.slow_reader`).
"""

import asyncio
import hashlib
import math
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.http import parse_cookie

from console.connections.client_addresses import normalize_address
from console.web.asgi_types import Application, Message, Receive, Scope, Send
from console.web.problem import PROGRAM_PATHS
from console.web.refusal import RequestRefused, refuse
from console.web.slow_reader import PATIENCE_SECONDS, Reader, ReaderLeft

AT_ONCE = 12
OF_ONE = 2 / 3
MAX_CREDENTIALS = 10_000  # number of persons that a process remembers
PLACE = "weir.place"  # in the scope of a request
EXPORT = "/export"  # the end of an export's path
ALIVE, WATCHED, FILES = "/healthz", ("/readyz", "/metrics"), "/static/"
EVENTS_OF = ("/api/v1/queues/", "/events")
REFUSED = "weir.refused"  # in the scope of a request: the number of rejections of each line


@dataclass(frozen=True)
class Line:
    """A line of requests that wait for a place.

    at_work: maximum at once. waiting: maximum. status: of the answer to those without a place. is_apart: its places are
    its own, and none of AT_ONCE.
    """

    name: str
    at_work: int
    waiting: int
    patience_seconds: float
    status: int = 429
    is_apart: bool = False


# First come, first served.
LINES = (
    Line("people", 12, 128, 20.0, 503),
    Line("programs", 6, 64, 5.0),
    Line("events", 6, 64, 5.0),
    Line("exports", 4, 16, 5.0, is_apart=True),
    Line("files", 16, 256, 20.0, 503, is_apart=True),
    Line("watched", 4, 32, 2.0, 503, is_apart=True),
    Line("alive", 4, 32, 2.0, 503, is_apart=True),
)


def choose_waiting_line(scope: Scope) -> str:
    """Return the name of the line that a request waits in."""
    path: str = scope["path"]
    if scope["method"] == "POST" and path.startswith(EVENTS_OF[0]) and path.endswith(EVENTS_OF[1]):
        return "events"
    if path.endswith(EXPORT):
        return "exports"
    if path.startswith(PROGRAM_PATHS):
        return "programs"
    if path == ALIVE or path in WATCHED:
        return "alive" if path == ALIVE else "watched"
    return "files" if path.startswith(FILES) else "people"


def compute_credential_digest(scope: Mapping[str, Any]) -> str:
    """Return a digest of the request's token or session; "" for none."""
    headers = dict(scope.get("headers", ()))
    secret = headers.get(b"authorization", b"")
    if not secret and (cookie := headers.get(b"cookie")):
        secret = parse_cookie(cookie.decode("latin1")).get(settings.SESSION_COOKIE_NAME, "").encode()
    return hashlib.sha256(secret).hexdigest() if secret else ""


def claim(scope: Mapping[str, Any], person: str) -> None:
    """Count a request for this person from now on. Raises `RequestRefused` if that is one too many.

    Called from any thread; nothing is counted for a request that did not pass through lines.
    """
    place: _Place | None = scope.get(PLACE)
    if place is not None:
        place.claim(person)


def count_refusals(scope: Mapping[str, Any]) -> Mapping[str, int] | None:
    """Return {line: requests rejected since this process started}; None for a request that bypassed the lines."""
    refused: Mapping[str, int] | None = scope.get(REFUSED)
    return refused


class Admission:
    """Wraps an application; one for each process, as its event loop."""

    def __init__(
        self,
        application: Application,
        lines: Sequence[Line] = LINES,
        at_once: int = AT_ONCE,
        reading_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.application, self.at_once, self.reading_seconds = application, at_once, reading_seconds
        self.lines = {line.name: line for line in lines}
        self.beside = tuple(line.name for line in lines if not line.is_apart)  # they share AT_ONCE
        self.at_work: Counter[str] = Counter()
        self.at_work_of: Counter[tuple[str, str]] = Counter()  # of a line, for an address or a person
        self.people: OrderedDict[str, str] = OrderedDict()  # by the digest of a credential
        self.lock = threading.Lock()  # of the counts: people are known in Django's threads
        self.waiting: dict[str, deque[_Place]] = {line.name: deque() for line in lines}
        self.refused = Counter(dict.fromkeys(self.lines, 0))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        credential = compute_credential_digest(scope)
        client = normalize_address((scope.get("client") or ("",))[0])
        person = self.people.get(credential, credential)
        place = _Place(self, self.lines[choose_waiting_line(scope)], client, credential, person)
        try:
            known = {**scope, REFUSED: self.refused, PLACE: place}
            await self.application(known, place.wrap_receive(receive), Reader(send, self.reading_seconds).send)
        except RequestRefused as refusal:
            place.leave()
            await refuse(scope, send, refusal)
        except ReaderLeft:
            return  # the server closes the connection of an incomplete answer
        finally:
            place.leave()

    def has_room(self, line: Line, *shares: str) -> bool:
        """Return whether one more request of a line may be processed, for this address and this person."""
        return all(
            sum(self.at_work[name] for name in names) < most
            and all(self.count_held_places(names, share) < _count_for_client(most) for share in shares)
            for names, most in self.list_limits(line)
        )

    def list_limits(self, line: Line) -> list[tuple[tuple[str, ...], int]]:
        """Return the limits of a line: lines, and the maximum number of their requests in progress."""
        own = ((line.name,), line.at_work)
        return [own] if line.is_apart else [own, (self.beside, self.at_once)]

    def count_held_places(self, lines: Sequence[str], share: str) -> int:
        """Return how many places of the lines one address, or one person, has."""
        return sum(self.at_work_of[name, share] for name in lines)

    def learn(self, credential: str, person: str) -> None:
        """Remember the person of a credential; the least recent of MAX_CREDENTIALS is forgotten."""
        self.people[credential] = person
        self.people.move_to_end(credential)
        if len(self.people) > MAX_CREDENTIALS:
            self.people.popitem(last=False)

    def let_in(self) -> None:
        """Admit all for whom there is a place now, people first."""
        for name, waiting in self.waiting.items():
            for place in list(waiting):
                if self.has_room(self.lines[name], *place.shares):
                    waiting.remove(place)
                    place.take()


def _count_for_client(places: int) -> int:
    return math.ceil(places * OF_ONE)


@dataclass(eq=False)
class _Place:
    """The place of one request."""

    admission: Admission
    line: Line
    client: str
    credential: str
    person: str  # the credential itself until its person is known
    taken: bool = False
    free: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def shares(self) -> list[str]:
        """Return what its place counts for: its address and its person, if known."""
        return [share for share in (self.client, self.person) if share]

    def claim(self, person: str) -> None:
        """Count it for this person. Raises `RequestRefused`."""
        admission = self.admission
        with admission.lock:
            if self.credential:
                admission.learn(self.credential, person)
            if person == self.person:
                return
            if self.taken and self.person:
                self._add(self.person, -1)
            self.person = person
            if self.taken:
                self._add(person, 1)
            limits = admission.list_limits(self.line)
            if not any(admission.count_held_places(names, person) > _count_for_client(most) for names, most in limits):
                return
            admission.refused[self.line.name] += 1
        message = "Too many of your requests are in progress. Wait until they finish, then try again."
        raise RequestRefused(429, message, retry_after_seconds=1, field="")

    def wrap_receive(self, receive: Receive) -> Receive:
        """Wrap `receive`, so that the message that completes the request waits for a place."""

        async def receive_in_place() -> Message:
            message: Message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False) and not self.taken:
                await self.acquire()
            return message

        return receive_in_place

    async def acquire(self) -> None:
        """Wait for a place. Raises `RequestRefused`."""
        admission, waiting = self.admission, self.admission.waiting[self.line.name]
        if admission.has_room(self.line, *self.shares):  # a waiting request has none
            self.take()
            return
        most_of_one = math.ceil(self.line.waiting / 2)
        waiting_of_one = max((sum(share in place.shares for place in waiting) for share in self.shares), default=0)
        if len(waiting) >= self.line.waiting or waiting_of_one >= most_of_one:
            raise self.build_refusal()
        waiting.append(self)
        try:
            async with asyncio.timeout(self.line.patience_seconds):
                await self.free.wait()
        except TimeoutError:
            # It may have been admitted at that very instant.
            if not self.taken:
                raise self.build_refusal() from None
        finally:
            if not self.taken:
                waiting.remove(self)

    def take(self) -> None:
        self._count(1)
        self.free.set()

    def leave(self) -> None:
        """Release the place to the next request."""
        if self.taken:
            self._count(-1)
            self.admission.let_in()

    def _count(self, places: int) -> None:
        with self.admission.lock:
            self.taken = places > 0
            self.admission.at_work[self.line.name] += places
            for share in self.shares:
                self._add(share, places)

    def _add(self, share: str, places: int) -> None:
        held, key = self.admission.at_work_of, (self.line.name, share)
        held[key] += places
        if not held[key]:
            del held[key]  # there are more addresses than memory

    def build_refusal(self) -> RequestRefused:
        self.admission.refused[self.line.name] += 1
        waiting = len(self.admission.waiting[self.line.name])
        message = f"The console is overloaded: {waiting} similar requests are waiting. Try again in a moment."
        return RequestRefused(self.line.status, message, retry_after_seconds=1, field="")
