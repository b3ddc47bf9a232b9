"""The dead letters of a queue over all its nodes: looked at, put in again, discarded."""

import functools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import redis

from queues.errors import BadInput, NodeUnavailable
from queues.models import Queue
from queues.segment import DeadLetter, Segment

Chosen = list[tuple[Segment, list[str]]]

FIRST = 50
SHOWN_EVENTS = 3
PAGE = 500
TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True)
class Letter:
    """A dead letter as a page shows it; node and id together name it, `node:id`."""

    id: str
    node: str
    events: list[dict[str, Any]]  # the first few
    event_count: int
    error: str
    tries: int
    worker: str
    block_id: str
    at: datetime


@dataclass(frozen=True)
class Letters:
    """The oldest letters, and the nodes that did not answer."""

    found: list[Letter]
    unreachable: list[str]


def letters_of(queue: Queue, count: int = FIRST) -> Letters:
    """Up to `count` letters, the oldest first. A node that does not answer is named, the others go on."""
    found: list[Letter] = []
    unreachable = []
    for node, segment in _segments(queue).items():
        try:
            found += [_letter(node, letter) for letter in segment.dead_letters(count)]
        except NodeUnavailable:
            unreachable.append(node)
    found.sort(key=lambda letter: (letter.at, letter.id))
    return Letters(found[:count], unreachable)


def every_id(queue: Queue) -> list[str]:
    """The ids of all letters. Raises NodeUnavailable: "all" must not quietly mean "some"."""
    ids = []
    for node, segment in _segments(queue).items():
        after = "-"
        while page := segment.dead_letters(PAGE, after):
            ids += [f"{node}:{letter.dead_id}" for letter in page]
            after = page[-1].dead_id
    return ids


def requeue(chosen: Chosen) -> int:
    """Put letters into their segments again; returns the events moved. Raises NodeUnavailable, NodeFull."""
    return sum(segment.requeue(dead_ids).events for segment, dead_ids in chosen)


def discard(chosen: Chosen) -> int:
    """Delete letters for good; returns how many were there. Raises NodeUnavailable."""
    return sum(segment.discard(dead_ids) for segment, dead_ids in chosen)


def choose(queue: Queue, ids: Iterable[str]) -> Chosen:
    """The letters named, by node. Raises BadInput for a name that can't be one, and when none is named."""
    segments = _segments(queue)
    chosen: dict[str, list[str]] = defaultdict(list)
    for name in ids:
        node, _, dead_id = name.partition(":")
        milliseconds, _, number = dead_id.partition("-")
        if node not in segments or not (milliseconds.isdigit() and number.isdigit()):
            raise BadInput("letter", f"{name} is not a dead letter of {queue.name}; reload the page.")
        chosen[node].append(dead_id)
    if not chosen:
        raise BadInput("letter", "choose at least one dead letter.")
    return [(segments[node], dead_ids) for node, dead_ids in chosen.items()]


def _segments(queue: Queue) -> dict[str, Segment]:
    containers = queue.containers.select_related("node").order_by("node__name")
    return {c.node.name: Segment(_client(c.node.url), queue.name) for c in containers}


@functools.lru_cache(maxsize=64)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, retry=None
    )


def _letter(node: str, letter: DeadLetter) -> Letter:
    return Letter(
        id=letter.dead_id,
        node=node,
        events=letter.batch.slice(0, SHOWN_EVENTS).to_pylist(),
        event_count=letter.batch.num_rows,
        error=letter.error,
        tries=letter.tries,
        worker=letter.worker,
        block_id=letter.block_id,
        at=datetime.fromtimestamp(letter.at_seconds, UTC),
    )
