"""What a scenario does to the shop, each through the door that it comes by in earnest, and how an incident
names it.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from bench.causes.shop import ALL, APPLICATION, NONE, QUEUES, SERVICE, Shop
from queues.publishing.streams import HOT_KEY

WILD_PER_SECOND, SLOW_SECONDS = 3_000.0, 0.08
NODES = ("n1", "n2", "n3")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Named:
    """How an incident names a cause: by a row of what changed, of what is different, or its own labels."""

    change: Callable[[Row], bool] = lambda row: False
    difference: Callable[[Row], bool] = lambda row: False
    labels: Mapping[str, str] | None = None


Strike = Callable[[Shop, str, Random], AbstractContextManager[Named]]


def find_change(kind: str, *words: str) -> Callable[[Row], bool]:
    """A change of that kind whose sentence has the words, from now on (snapshots are seconds old)."""
    since = time.time() - 5.0

    def is_it(row: Row) -> bool:
        return row["kind"] == kind and row["at"] >= since and all(word in row["words"] for word in words)

    return is_it


def differs(*values: str) -> Callable[[Row], bool]:
    """A dimension that has this value, of a producer, a key or a source, more than before."""
    return lambda row: row["value"] in values and row["effect"] > 0


@contextmanager
def wild_producer(shop: Shop, queue: str, chance: Random) -> Iterator[Named]:
    stream = chance.choice(shop.producers.list_producers(queue))
    named = Named(find_change("producer rose", stream.producer), differs(stream.producer))
    stream.per_second = WILD_PER_SECOND
    yield named


@contextmanager
def hot_key(shop: Shop, queue: str, chance: Random) -> Iterator[Named]:
    """All producers send it: none of them is to blame."""
    for stream in shop.producers.list_producers(queue):
        stream.hot_per_second = WILD_PER_SECOND / 2
    yield Named(difference=differs(HOT_KEY))


@contextmanager
def slow_handler(shop: Shop, queue: str, chance: Random) -> Iterator[Named]:
    """Somebody changes an option of the handler."""
    named = Named(find_change("queue.change", queue))
    shop.define(queue, handler_options={"seconds": SLOW_SECONDS})
    yield named
    shop.define(queue, handler_options=SERVICE)


@contextmanager
def install_failing_handler(shop: Shop, queue: str, chance: Random) -> Iterator[Named]:
    """Somebody gives the queue a handler that takes no events."""
    named = Named(find_change("queue.change", queue))
    shop.define(queue, handler="python:math.sqrt", handler_options={}, tries=1)
    yield named
    shop.define(queue, handler="emulate", handler_options=SERVICE)


@contextmanager
def bad_deploy(shop: Shop, queue: str, chance: Random) -> Iterator[Named]:
    """Others deploy the handler's own code, and report it; Weir sees no setting change."""
    release = f"{queue} {chance.randrange(1_000, 9_999)}"
    named = Named(find_change("deploy", release))
    report(shop, f"queue/{queue}", release, chance)
    shop.set_handler(queue, "emulate", seconds=SLOW_SECONDS)
    yield named


def report(shop: Shop, part: str, title: str, chance: Random) -> None:
    """A deploy, as CI reports it."""
    shop.ask(
        "changes",
        specversion="1.0",
        id=str(chance.getrandbits(64)),
        source="ci",
        type="dev.cdevents.service.deployed.0.2",
        subject=part,
        data={"title": title},
    )


@contextmanager
def hold_workers(shop: Shop, queue: str, chance: Random) -> Iterator[Named]:
    """Somebody holds the loops that start the queue's workers."""
    named = Named(find_change("override mode", queue))
    loops = [row for row in shop.answer("loops")["loops"] if row["name"].startswith(f"worker_rate/{queue}/")]
    for loop in loops:
        shop.ask(f"loops/{loop['id']}/mode", mode="hold", minutes=10)
    yield named
    for loop in loops:
        shop.ask(f"loops/{loop['id']}/mode", mode="auto")


@contextmanager
def drain_host(shop: Shop, queue: str, chance: Random) -> Iterator[Named]:
    """The only one that handles jobs."""
    named = Named(find_change("override work"))
    snapshot = shop.snapshot() or {}
    host = next(name for name, row in snapshot["hosts"].items() if row["role"] == "jobs")
    shop.ask(f"workers/{host}/drain", minutes=10)
    yield named
    shop.ask(f"workers/{host}/return")


@contextmanager
def freeze_node(shop: Shop, queue: str, chance: Random) -> Iterator[Named]:
    """Its server stands still."""
    node = chance.choice(NODES)
    server = shop.node_server(node)
    server.send_signal(signal.SIGSTOP)
    try:
        yield Named(labels={"node": node})
    finally:
        server.send_signal(signal.SIGCONT)


@contextmanager
def bad_declaration(shop: Shop, queue: str, chance: Random) -> Iterator[Named]:
    """A version that discards nothing: each click becomes a letter."""
    named = Named(find_change("declaration", APPLICATION))
    shop.declare(NONE)
    yield named
    shop.declare(ALL)


KINDS: Mapping[str, Strike] = {
    "a producer gone wild": wild_producer,
    "a hot key": hot_key,
    "a slow handler": slow_handler,
    "a failing handler": install_failing_handler,
    "a bad deploy": bad_deploy,
    "held workers": hold_workers,
    "a drained host": drain_host,
    "a lost node": freeze_node,
    "a bad declaration": bad_declaration,
}
QUEUES_OF = {"a bad declaration": ("mail",)}


def queue_for(kind: str, taken: set[str], chance: Random) -> str:
    """Where it strikes: not where another does."""
    free = [queue for queue in QUEUES_OF.get(kind, QUEUES) if queue not in taken]
    return chance.choice(free or list(QUEUES))
