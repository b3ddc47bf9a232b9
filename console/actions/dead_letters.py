"""The dead letters of all queues over all nodes: searched, and named as they were seen.

Events may be about people: who may not peek into a queue (`queue.peek`) gets its dead letters sealed, with
why they failed and how many events they have, and without what is in them.
"""

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import redis
from django.http import HttpResponse

from console.accounts.access import Actor, demand
from console.audit import audit_log
from queues.errors import BadInput, MalformedEvent, NodeUnavailable
from queues.events.unreadable import TYPE as UNREADABLE
from queues.events.unreadable import bytes_of
from queues.models import Container, Queue
from queues.nodes.login import logged_in
from queues.segments.dead_letters import DeadLetter, DeadLetters
from queues.segments.segment import Segment, entry_seconds
from queues.text import numbers

# Of a search; a block's letter may have a megabyte, and all that were found are held at once.
MOST_SCANNED, MOST_SCANNED_BYTES = 20_000, 128 * 2**20
TIMEOUT_SECONDS = 2.0
MAXIMUM_TEXT = 200
GROUPS = 8
ERROR_SHOWN = 160
EXCERPT_BYTES = 256


@dataclass(frozen=True)
class Name:
    """Which letter, and as it was seen; written `queue/node/id/digest`."""

    queue: str
    node: str
    id: str
    digest: str

    @classmethod
    def read(cls, text: str) -> "Name":
        """Raises BadInput for what can't be a name."""
        parts = text.split("/")
        milliseconds, _, number = (parts[2] if len(parts) == 4 else "").partition("-")
        if not all(_is_half_of_an_id(part) for part in (milliseconds, number)):
            raise BadInput("letter", f"{text[:80]!r} names no dead letter; reload the page.")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.queue}/{self.node}/{self.id}/{self.digest}"


@dataclass(frozen=True)
class NamedDeadLetter:
    """A dead letter as it is shown; sealed: without what is in it."""

    name: Name
    stored: DeadLetter
    at: datetime
    sealed: bool = False

    @property
    def error(self) -> str:
        return self.stored.error

    @property
    def worker(self) -> str:
        return self.stored.worker

    @property
    def event_count(self) -> int:
        return self.stored.events

    @cached_property
    def _read(self) -> tuple[list[dict[str, Any]], str, bytes]:
        """The events by their fields; when they can't be read why, and the bytes that can't."""
        if self.sealed:
            return [], "", b""
        try:
            events = self.stored.batch.to_pylist()
        except MalformedEvent as error:
            return [], error.message, self.stored.data
        except (ValueError, OverflowError) as error:  # a time that is in no calendar
            return [], f"{self.stored.block_id[:80]} can't be read ({str(error)[:200]}).", self.stored.data
        met_by_a_worker = len(events) == 1 and events[0]["type"] == UNREADABLE
        if met_by_a_worker and (carried := bytes_of(events[0]["attributes"])):
            return [], self.error, carried
        return events, "", self.stored.data

    @property
    def events(self) -> list[dict[str, Any]]:
        """All of them; none when they can't be read."""
        return self._read[0]

    @property
    def unreadable(self) -> str:
        """Why the events can't be read; "" when they can."""
        return self._read[1]

    @property
    def original(self) -> bytes:
        """The bytes that can't be read; else the events as they are stored, an Arrow record batch."""
        return self._read[2]

    def excerpt(self) -> list[str]:
        """The first bytes that can't be read: offset, hex, and what of it is ASCII, 16 a line."""
        data = self.original[:EXCERPT_BYTES]
        return [_hex_line(start, data[start : start + 16]) for start in range(0, len(data), 16)]

    @property
    def types(self) -> list[str]:
        if self.unreadable:
            return [UNREADABLE]
        return sorted({str(event["type"]) for event in self.events if event["type"] is not None})

    def document(self) -> dict[str, Any]:
        """As JSON; `name` is what an action takes."""
        of_stored = ("error", "tries", "worker", "block_id", "fixes")
        return {
            "name": str(self.name),
            **{part: getattr(self.name, part) for part in ("queue", "node", "id")},
            "at": self.at,
            "events": self.events,
            "event_count": self.event_count,
            "sealed": self.sealed,
            "unreadable": self._unreadable() if self.unreadable else None,
            **{part: getattr(self.stored, part) for part in of_stored},
        }

    def _unreadable(self) -> dict[str, Any]:
        data = self.original
        return {"error": self.unreadable, "bytes": len(data), "hex": data[:EXCERPT_BYTES].hex()}


@dataclass(frozen=True)
class DeadLetterFilter:
    """Each field narrows; empty chooses all. error: part of it. since ≤ at < until."""

    queue: str = ""
    error: str = ""
    type: str = ""
    worker: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def check(self) -> "DeadLetterFilter":
        """Itself. Raises BadInput naming the field that takes something else."""
        for field in ("error", "type", "worker"):
            if len(getattr(self, field)) > MAXIMUM_TEXT:
                raise BadInput(field, f"takes at most {MAXIMUM_TEXT} characters.")
        if self.queue and not Queue.objects.filter(name=self.queue).exists():
            raise BadInput("queue", f"{self.queue[:40]} is not known.")
        if self.since and self.until and self.since >= self.until:
            raise BadInput("to", "takes a time after from.")
        return self

    def fits(self, letter: NamedDeadLetter) -> bool:
        return (
            self.error.lower() in letter.error.lower()
            and (not self.type or self.type in letter.types)
            and self.worker in letter.worker
            and (self.since is None or letter.at >= self.since)
            and (self.until is None or letter.at < self.until)
        )


@dataclass(frozen=True, kw_only=True)
class ErrorGroup:
    """Dead letters of a queue with the same error: how many, with how many events, the first (at) and the
    last.
    """

    queue: str
    error: str
    letters: int
    events: int
    at: datetime
    last: datetime


@dataclass(frozen=True)
class FoundDeadLetters:
    """What matches a filter, the newest first; the nodes that did not answer; whether there may be more than
    was scanned, and how many were.
    """

    letters: list[NamedDeadLetter]
    unreachable: list[str]
    more: bool
    scanned: int = 0

    @property
    def digest(self) -> str:
        """Of exactly these dead letters as they are: what is acted on must be what was counted."""
        names = sorted(str(letter.name) for letter in self.letters)
        return hashlib.sha256("\n".join(names).encode()).hexdigest()

    @property
    def newest(self) -> datetime:
        """When the last of them came, by its node's clock: what comes later is not meant."""
        return max((entered(letter) for letter in self.letters), default=datetime.fromtimestamp(0, UTC))

    def through(self, moment: datetime) -> "FoundDeadLetters":
        """Without those that came after an instant."""
        return replace(self, letters=[letter for letter in self.letters if entered(letter) <= moment])

    def groups(self) -> list[ErrorGroup]:
        """The commonest errors."""
        counts = Counter((letter.name.queue, letter.error[:ERROR_SHOWN]) for letter in self.letters)
        return [self._group(queue, error, count) for (queue, error), count in counts.most_common(GROUPS)]

    def _group(self, queue: str, error: str, count: int) -> ErrorGroup:
        mine = [
            each for each in self.letters if each.name.queue == queue and each.error[:ERROR_SHOWN] == error
        ]
        return ErrorGroup(
            queue=queue,
            error=error,
            letters=count,
            events=sum(each.event_count for each in mine),
            at=min(each.at for each in mine),
            last=max(each.at for each in mine),
        )


def entered(letter: NamedDeadLetter) -> datetime:
    """When it came among the dead letters as it is now: a mended one is newer than it is dead."""
    return datetime.fromtimestamp(entry_seconds(letter.name.id.encode()), UTC)


def _is_half_of_an_id(text: str) -> bool:
    """A stream's ids are two numbers of 64 bits. Another stops a script behind what it has done before."""
    number = numbers.digits(text, 20)
    return number is not None and number < 2**64


def _hex_line(start: int, data: bytes) -> str:
    plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
    return f"{start:04x}  {data.hex(' '):<47}  {plain}"


def may_open(actor: Actor, queue: str) -> bool:
    """Whether the actor may see what is in a queue's dead letters."""
    return actor.may("queue.peek") and actor.reaches([queue])


def search(criteria: DeadLetterFilter, actor: Actor) -> FoundDeadLetters:
    """All dead letters that match, of the first MOST_SCANNED or MOST_SCANNED_BYTES, as the actor may see
    them. A node that does not answer is named.
    """
    letters: list[NamedDeadLetter] = []
    unreachable: set[str] = set()
    scanned = size_bytes = 0
    for whole in _every(criteria.queue, unreachable):
        scanned, size_bytes = scanned + 1, size_bytes + len(whole.stored.data)
        letter = replace(whole, sealed=not may_open(actor, whole.name.queue))
        if criteria.fits(replace(letter)):  # a copy, which alone holds the events that were read for it
            letters.append(letter)
        if scanned >= MOST_SCANNED or size_bytes >= MOST_SCANNED_BYTES:
            break
    is_cut = scanned >= MOST_SCANNED or size_bytes >= MOST_SCANNED_BYTES
    letters.sort(key=lambda letter: (letter.at, letter.name.id), reverse=True)
    return FoundDeadLetters(letters, sorted(unreachable), is_cut, scanned)


def newest(queue: Queue, count: int, actor: Actor) -> FoundDeadLetters:
    """A few dead letters of one queue as the actor may see them, without reading them all."""
    sealed = not may_open(actor, queue.name)
    letters: list[NamedDeadLetter] = []
    unreachable = []
    for name, node, place in _places(queue.name):
        try:
            read = place.read(count)
            letters += [replace(_shown(name, node, letter), sealed=sealed) for letter in read]
        except NodeUnavailable:
            unreachable.append(node)
    letters.sort(key=lambda letter: (letter.at, letter.name.id))
    return FoundDeadLetters(letters[:count], unreachable, len(letters) > count)


def opened(actor: Actor, queue: str, node: str, dead_id: str) -> NamedDeadLetter | None:
    """One letter as the actor may see it; that its events were seen is noted in the audit. None when it is
    not there any more. Raises BadInput, NodeUnavailable.
    """
    letter = find(queue, node, dead_id)
    if letter is None or not may_open(actor, queue):
        return letter and replace(letter, sealed=True)
    note_opened(actor, [letter])
    return letter


def note_opened(actor: Actor, letters: Iterable[NamedDeadLetter]) -> None:
    """An entry in the audit for each place whose dead letters this actor has seen whole."""
    seen: dict[str, list[NamedDeadLetter]] = {}
    for letter in letters:
        if not letter.sealed:
            seen.setdefault(f"{letter.name.queue}/{letter.name.node}", []).append(letter)
    for place, mine in seen.items():
        first = [letter.name.id for letter in mine[:GROUPS]]
        after = {"dead_letters": first, "events": sum(letter.event_count for letter in mine)}
        audit_log.record(actor, "queue.peek", place, after=after)


def stored_bytes(actor: Actor, queue: str, node: str, dead_id: str) -> NamedDeadLetter | None:
    """The letter whose bytes are to be downloaded. Raises PermissionDenied, BadInput, NodeUnavailable."""
    demand(actor, "queue.peek", [queue])
    return opened(actor, queue, node, dead_id)


def find(queue: str, node: str, dead_id: str) -> NamedDeadLetter | None:
    """One letter with what is in it, None when it is not there any more. Raises BadInput, NodeUnavailable."""
    name = Name.read(f"{queue}/{node}/{dead_id}/")
    letter = place_of(name).find(dead_id)
    return None if letter is None else _shown(queue, node, letter)


def download(letter: NamedDeadLetter) -> HttpResponse:
    """The letter's bytes as a file; a browser saves it, whatever is in it."""
    name = re.sub(r"[^\w.-]", "_", f"{letter.name.queue}-{letter.name.node}-{letter.name.id}", flags=re.ASCII)
    response = HttpResponse(letter.original, content_type="application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="{name}.bin"'
    return response


def chosen(names: Iterable[str]) -> list[Name]:
    """The dead letters named. Raises BadInput for a name that can't be one, and when none is named."""
    found = [Name.read(text) for text in names]
    if not found:
        raise BadInput("letter", "choose at least one dead letter.")
    for name in found:
        place_of(name)
    return found


def by_place(names: Sequence[Name]) -> Iterator[tuple[str, str, DeadLetters, Mapping[str, str]]]:
    """Queue, node, its dead letters, and what of them is named: dead id → digest."""
    for queue, node in sorted({(name.queue, name.node) for name in names}):
        mine = {name.id: name.digest for name in names if (name.queue, name.node) == (queue, node)}
        yield queue, node, place_of(Name(queue, node, "", "")), mine


def place_of(name: Name) -> DeadLetters:
    """The dead letters of a queue on a node. Raises BadInput when it has no container there."""
    rows = Container.objects.filter(queue__name=name.queue, node__name=name.node).select_related("node")
    container = rows.first()
    if container is None:
        raise BadInput("letter", f"{name.queue} has no container on {name.node}; reload the page.")
    return DeadLetters(Segment(_client(container.node.url), name.queue))


def _places(queue: str) -> list[tuple[str, str, DeadLetters]]:
    rows = Container.objects.select_related("node", "queue").order_by("queue__name", "node__name")
    return [
        (row.queue.name, row.node.name, DeadLetters(Segment(_client(row.node.url), row.queue.name)))
        for row in (rows.filter(queue__name=queue) if queue else rows)
    ]


def _every(queue: str, unreachable: set[str]) -> Iterator[NamedDeadLetter]:
    """Of one queue, or ("") of all. A node that does not answer is added to `unreachable`."""
    for name, node, place in _places(queue):
        if node in unreachable:  # it is waited for once, and not for each queue
            continue
        try:
            yield from (_shown(name, node, letter) for letter in place.every(MOST_SCANNED))
        except NodeUnavailable:
            unreachable.add(node)


def _shown(queue: str, node: str, letter: DeadLetter) -> NamedDeadLetter:
    at = datetime.fromtimestamp(letter.at_seconds, UTC)
    return NamedDeadLetter(Name(queue, node, letter.dead_id, letter.digest), letter, at)


@functools.lru_cache(maxsize=1_024)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        logged_in(url), socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, retry=None
    )
