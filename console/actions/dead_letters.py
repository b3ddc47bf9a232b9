"""The dead letters of all queues on all nodes: searched, and named as they were shown.

Events may be about people: users who may not peek into a queue (`queue.peek`) get its dead letters sealed, with their
error and number of events, but without their contents.
"""

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any

import redis
from django.http import HttpResponse

from common import parsing
from common.errors import BadInput, MalformedEvent, NodeUnavailable
from common.stored_document import Time, describe
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from queues.durability import get_durability_on_node
from queues.events.block import TYPE as UNREADABLE
from queues.events.block import decode_unreadable_bytes
from queues.models import Container, Queue
from queues.nodes.addresses import add_login
from queues.segments.checksum import DAMAGED
from queues.segments.dead_letters import DeadLetter, DeadLetters
from queues.segments.segment import Segment, parse_entry_seconds

# Limit of a search; a block's letter may have a megabyte, and all that were found are in memory at once.
MAX_SCANNED, MAX_SCANNED_BYTES = 20_000, 128 * 2**20
TIMEOUT_SECONDS = 2.0
MAXIMUM_TEXT = 200
GROUPS = 8
ERROR_SHOWN = 160
EXCERPT_BYTES = 256


@dataclass(frozen=True)
class Name:
    """A letter in a certain state, written `queue/node/id/digest`."""

    queue: str
    node: str
    id: str
    digest: str

    @classmethod
    def read(cls, text: str) -> "Name":
        """Parse a name. Raises `BadInput` for an invalid one."""
        parts = text.split("/")
        milliseconds, _, number = (parts[2] if len(parts) == 4 else "").partition("-")
        if not all(_is_half_of_an_id(part) for part in (milliseconds, number)):
            raise BadInput("letter", f"{text[:80]!r} is not the name of a dead letter. Reload the page.")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.queue}/{self.node}/{self.id}/{self.digest}"


@dataclass(frozen=True)
class NamedDeadLetter:
    """A dead letter as shown; sealed: without its contents."""

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
    def is_damaged(self) -> bool:
        """Return whether its stored bytes differ from those that were published; it can't be requeued."""
        return self.stored.is_damaged

    @property
    def event_count(self) -> int:
        return self.stored.events

    @cached_property
    def _read(self) -> tuple[list[dict[str, Any]], str, bytes]:
        """Return the events by their fields; if unreadable, why and their bytes."""
        if self.sealed:
            return [], "", b""
        if self.stored.damage:
            return [], self.stored.damage, self.stored.data
        try:
            events = self.stored.batch.to_pylist()
        except MalformedEvent as error:
            return [], error.message, self.stored.data
        except (ValueError, OverflowError) as error:  # a time outside the calendar
            return [], f"{self.stored.block_id[:80]} can't be read ({str(error)[:200]}).", self.stored.data
        holds_bytes = len(events) == 1 and events[0]["type"] == (DAMAGED if self.stored.kind else UNREADABLE)
        if holds_bytes and (carried := decode_unreadable_bytes(events[0]["attributes"])):
            return [], self.error, carried
        return events, "", self.stored.data

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return all events; none if they are unreadable."""
        return self._read[0]

    @property
    def unreadable(self) -> str:
        """Return why the events are unreadable; "" if they are readable."""
        return self._read[1]

    @property
    def original(self) -> bytes:
        """Return the unreadable bytes, or else the events as stored, an Arrow record batch."""
        return self._read[2]

    @property
    def title(self) -> str:
        """Return the type of its first event, or what kind of dead letter it is."""
        if self.is_damaged:
            return DAMAGED
        if self.unreadable:
            return UNREADABLE
        return str(self.events[0]["type"] or "event") if self.events else "event"

    def excerpt(self) -> list[str]:
        """Return the first unreadable bytes: offset, hex, and ASCII, 16 a line."""
        data, lines = self.original[:EXCERPT_BYTES], []
        for start in range(0, len(data), 16):
            part = data[start : start + 16]
            plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
            lines.append(f"{start:04x}  {part.hex(' '):<47}  {plain}")
        return lines

    @property
    def types(self) -> list[str]:
        if self.is_damaged:
            return [DAMAGED]
        if self.unreadable:
            return [UNREADABLE]
        return sorted({str(event["type"]) for event in self.events if event["type"] is not None})


@dataclass(frozen=True)
class DeadLetterFilter:
    """A filter of dead letters; empty fields match all. error: part of it. since ≤ at < until."""

    queue: str = ""
    error: str = ""
    type: str = ""
    worker: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def check(self) -> "DeadLetterFilter":
        """Return itself. Raises `BadInput` that names an invalid field."""
        for field in ("error", "type", "worker"):
            if len(getattr(self, field)) > MAXIMUM_TEXT:
                raise BadInput(field, f"must have at most {MAXIMUM_TEXT} characters.")
        if self.queue and not Queue.objects.filter(name=self.queue).exists():
            raise BadInput("queue", f"{self.queue[:40]} is unknown.")
        if self.since and self.until and self.since >= self.until:
            raise BadInput("to", "must be a time after `from`.")
        return self

    def fits(self, letter: NamedDeadLetter) -> bool:
        return (
            self.error.lower() in letter.error.lower()
            and (not self.type or self.type in letter.types)
            and self.worker in letter.worker
            and (self.since is None or letter.at >= self.since)
            and (self.until is None or letter.at < self.until)
        )


def describe_filter(criteria: DeadLetterFilter | None) -> str:
    """Return a filter in words; None: of letters that were chosen one by one."""
    if criteria is None:
        return "chosen dead letters"
    known = [f"{name}:{value}" for name, value in vars(criteria).items() if value]
    return " ".join(["dead letters", *known])


@dataclass(frozen=True, kw_only=True)
class ErrorGroup:
    """Dead letters of a queue with the same error."""

    queue: str
    error: str
    letters: int
    events: int
    at: Annotated[Time, describe("Time of the first dead letter.")]
    last: Time


@dataclass(frozen=True)
class FoundDeadLetters:
    """Letters that match a filter, the newest first, and the unreachable nodes.

    The result also says whether the scan was limited, and its size.
    """

    letters: list[NamedDeadLetter]
    unreachable: list[str]
    more: bool
    scanned: int = 0

    @property
    def digest(self) -> str:
        """Return the digest of exactly these dead letters: an action must apply to what was counted."""
        names = sorted(str(letter.name) for letter in self.letters)
        return hashlib.sha256("\n".join(names).encode()).hexdigest()

    @property
    def newest(self) -> datetime:
        """Return when the last of them arrived, by its node's clock: later ones are not included."""
        return max((read_entry_time(letter) for letter in self.letters), default=datetime.fromtimestamp(0, UTC))

    def limit_to(self, moment: datetime) -> "FoundDeadLetters":
        """Return the result without letters that arrived after an instant."""
        return replace(self, letters=[letter for letter in self.letters if read_entry_time(letter) <= moment])

    def list_groups(self) -> list[ErrorGroup]:
        """Return the most common errors."""
        counts = Counter((letter.name.queue, letter.error[:ERROR_SHOWN]) for letter in self.letters)
        groups = []
        for (queue, error), count in counts.most_common(GROUPS):
            mine = [
                letter for letter in self.letters if (letter.name.queue, letter.error[:ERROR_SHOWN]) == (queue, error)
            ]
            events, at = sum(letter.event_count for letter in mine), [letter.at for letter in mine]
            groups.append(ErrorGroup(queue=queue, error=error, letters=count, events=events, at=min(at), last=max(at)))
        return groups


def read_entry_time(letter: NamedDeadLetter) -> datetime:
    """Return when the letter, in its current form, became a dead letter. A fixed letter is newer than its failure."""
    return datetime.fromtimestamp(parse_entry_seconds(letter.name.id.encode()), UTC)


def _is_half_of_an_id(text: str) -> bool:
    """Return whether the text is a 64-bit number: a stream's ID is two of them; others stop a script halfway."""
    number = parsing.parse_digits(text, 20)
    return number is not None and number < 2**64


def may_open(actor: Actor, queue: str) -> bool:
    """Return whether the actor may see the contents of a queue's dead letters."""
    return actor.may("queue.peek") and actor.can_access_queues([queue])


def search(criteria: DeadLetterFilter, actor: Actor) -> FoundDeadLetters:
    """Return all dead letters that match, as the actor may see them.

    The search covers the first MAX_SCANNED letters or MAX_SCANNED_BYTES. Unreachable nodes are named.
    """
    letters: list[NamedDeadLetter] = []
    unreachable: set[str] = set()
    scanned = size_bytes = 0
    for whole in _iterate_letters(criteria.queue, unreachable):
        scanned, size_bytes = scanned + 1, size_bytes + len(whole.stored.data)
        letter = replace(whole, sealed=not may_open(actor, whole.name.queue))
        if criteria.fits(replace(letter)):  # a copy, which alone holds the events that were read for it
            letters.append(letter)
        if scanned >= MAX_SCANNED or size_bytes >= MAX_SCANNED_BYTES:
            break
    is_cut = scanned >= MAX_SCANNED or size_bytes >= MAX_SCANNED_BYTES
    letters.sort(key=lambda letter: (letter.at, letter.name.id), reverse=True)
    return FoundDeadLetters(letters, sorted(unreachable), is_cut, scanned)


def read_newest_letters(queue: Queue, count: int, actor: Actor) -> FoundDeadLetters:
    """Return a few dead letters of one queue as the actor may see them, without reading them all."""
    sealed = not may_open(actor, queue.name)
    letters: list[NamedDeadLetter] = []
    unreachable = []
    for name, node, place in _list_letter_stores(queue.name):
        try:
            read = place.read(count)
            letters += [replace(_build_row(name, node, letter), sealed=sealed) for letter in read]
        except NodeUnavailable:
            unreachable.append(node)
    letters.sort(key=lambda letter: (letter.at, letter.name.id))
    return FoundDeadLetters(letters[:count], unreachable, len(letters) > count)


def open_letter(actor: Actor, queue: str, node: str, dead_id: str) -> NamedDeadLetter | None:
    """Return one letter as the actor may see it, and record in the audit log that its events were seen.

    Returns None if it is gone. Raises BadInput, NodeUnavailable.
    """
    letter = find(queue, node, dead_id)
    if letter is None or not may_open(actor, queue):
        return letter and replace(letter, sealed=True)
    note_opened(actor, [letter])
    return letter


def note_opened(actor: Actor, letters: Iterable[NamedDeadLetter]) -> None:
    """Record in the audit log each place whose dead letters this actor has seen."""
    seen: dict[str, list[NamedDeadLetter]] = {}
    for letter in letters:
        if not letter.sealed:
            seen.setdefault(f"{letter.name.queue}/{letter.name.node}", []).append(letter)
    for place, mine in seen.items():
        first = [letter.name.id for letter in mine[:GROUPS]]
        after = {"dead_letters": first, "events": sum(letter.event_count for letter in mine)}
        audit_log.record(actor, "queue.peek", place, after=after)


def load_stored_bytes(actor: Actor, queue: str, node: str, dead_id: str) -> NamedDeadLetter | None:
    """Return the letter for a download of its bytes. Raises PermissionDenied, BadInput, NodeUnavailable."""
    require_permission(actor, "queue.peek", [queue])
    return open_letter(actor, queue, node, dead_id)


def find(queue: str, node: str, dead_id: str) -> NamedDeadLetter | None:
    """Return one letter with its contents, None if it is gone. Raises BadInput, NodeUnavailable."""
    name = Name.read(f"{queue}/{node}/{dead_id}/")
    letter = place_of(name).find(dead_id)
    return None if letter is None else _build_row(queue, node, letter)


def build_download_response(letter: NamedDeadLetter) -> HttpResponse:
    """Return the letter's bytes as a file; browsers save it, whatever it contains."""
    name = re.sub(r"[^\w.-]", "_", f"{letter.name.queue}-{letter.name.node}-{letter.name.id}", flags=re.ASCII)
    response = HttpResponse(letter.original, content_type="application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="{name}.bin"'
    return response


def parse_names(names: Iterable[str]) -> list[Name]:
    """Parse the names of dead letters. Raises `BadInput` for an invalid name, and if there are none."""
    parsed = [Name.read(text) for text in names]
    if not parsed:
        raise BadInput("letter", "is missing. Choose at least one dead letter.")
    for name in parsed:
        place_of(name)
    return parsed


def group_by_place(names: Sequence[Name]) -> Iterator[tuple[str, str, DeadLetters, Mapping[str, str]]]:
    """Return queue, node, its dead letters, and the named ones: dead id → digest."""
    for queue, node in sorted({(name.queue, name.node) for name in names}):
        mine = {name.id: name.digest for name in names if (name.queue, name.node) == (queue, node)}
        yield queue, node, place_of(Name(queue, node, "", "")), mine


def place_of(name: Name) -> DeadLetters:
    """Return the dead letters of a queue on a node. Raises `BadInput` if it has no container there."""
    rows = Container.objects.filter(queue__name=name.queue, node__name=name.node).select_related("node", "queue")
    container = rows.first()
    if container is None:
        raise BadInput("letter", f"{name.queue} has no container on {name.node}. Reload the page.")
    return _build_store(container)


def _list_letter_stores(queue: str) -> list[tuple[str, str, DeadLetters]]:
    rows = Container.objects.select_related("node", "queue").order_by("queue__name", "node__name")
    return [
        (row.queue.name, row.node.name, _build_store(row))
        for row in (rows.filter(queue__name=queue) if queue else rows)
    ]


def _build_store(container: Container) -> DeadLetters:
    queue, node = container.queue, container.node
    durability = get_durability_on_node(queue.durability, bool(node.replica_url))
    return DeadLetters(Segment(_get_client(node.get_primary_url()), queue.name, durability))


def _iterate_letters(queue: str, unreachable: set[str]) -> Iterator[NamedDeadLetter]:
    """Iterate over the letters of one queue, or ("") of all. Unreachable nodes are added to `unreachable`."""
    for name, node, place in _list_letter_stores(queue):
        if node in unreachable:  # its timeout is waited for once, and not for each queue
            continue
        try:
            yield from (_build_row(name, node, letter) for letter in place.iterate(MAX_SCANNED))
        except NodeUnavailable:
            unreachable.add(node)


def _build_row(queue: str, node: str, letter: DeadLetter) -> NamedDeadLetter:
    at = datetime.fromtimestamp(letter.at_seconds, UTC)
    return NamedDeadLetter(Name(queue, node, letter.dead_id, letter.digest), letter, at)


@functools.lru_cache(maxsize=1_024)
def _get_client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        add_login(url), socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, retry=None
    )
