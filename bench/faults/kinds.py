"""The kinds of faults: each is a context that breaks something of a plant; what does not mend itself is
mended at its end.
"""

import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import httpx
import psutil

from bench.faults.broken_plant import SERVERS, BrokenPlant
from bench.faults.load import QUEUE
from bench.faults.stored_log import cut, flip, tear
from bench.faults.whole import NODES
from console.connections.processes import send_signal
from queues.segments.gauge import read_gauges

# From the end of the fault until all is whole again, on a calm machine [s].
USUAL_SECONDS, PIPELINE_SECONDS, WEB_SECONDS = 10.0, 25.0, 8.0
SHORT_SECONDS, LONG_SECONDS = 3.0, 12.0
STEPS_SECONDS = (-3600, -600, 600, 3600)
PLAN_SECONDS = 120.0
WRITE_MILLISECONDS = 10  # that a write takes longer; an fsync takes a tenth of a second longer then
SOON_SECONDS = 30.0  # within which workers claim something, and a loop acts
# What an order to a worker goes through: who gives it, the broker and its disk, who takes it, by which clock
# it is still in time. A fault of these may take what is on its way: as many as begin at once, and no more.
ORDERED_THROUGH = ("control", "worker-jobs", "worker-control", "in an effect", "disk", "clock")
MAX_ORDERS_A_FAULT = 8

Strike = Callable[[BrokenPlant, Random], AbstractContextManager[None]]


@dataclass(frozen=True)
class Kind:
    """limit_seconds: within which the plant is whole again."""

    name: str
    strike: Strike
    limit_seconds: float = USUAL_SECONDS


def takes_orders(kind: str) -> bool:
    """Whether workers may never begin, by a fault of this kind, though they were ordered."""
    return any(part in kind for part in ORDERED_THROUGH)


def _limit(process: str) -> float:
    return {"pipeline": PIPELINE_SECONDS, "web": WEB_SECONDS}.get(process, USUAL_SECONDS)


def kill(process: str) -> Kind:
    """kill -9."""

    @contextmanager
    def strike(plant: BrokenPlant, chance: Random) -> Iterator[None]:
        plant.find_process(process).send_signal(signal.SIGKILL)
        yield

    return Kind(f"kill {process}", strike, _limit(process))


def kill_child(process: str) -> Kind:
    """kill -9 of one of those that a process has started: in the middle of an effect, a batch, a chunk."""

    @contextmanager
    def strike(plant: BrokenPlant, chance: Random) -> Iterator[None]:
        children = plant.family(process)[1:]
        if children:
            with suppress(psutil.NoSuchProcess):
                chance.choice(children).send_signal(signal.SIGKILL)
        yield

    return Kind(f"kill a child of {process}", strike, _limit(process))


def freeze(process: str) -> Kind:
    """Stopped with all its children, connections open, and let go on."""

    @contextmanager
    def strike(plant: BrokenPlant, chance: Random) -> Iterator[None]:
        family = plant.family(process)
        send_signal(family, signal.SIGSTOP)
        try:
            time.sleep(chance.uniform(SHORT_SECONDS, LONG_SECONDS))
            yield
        finally:
            send_signal(family, signal.SIGCONT)

    return Kind(f"freeze {process}", strike, _limit(process))


def lock(database: str) -> Kind:
    """Somebody holds SQLite's write lock."""

    @contextmanager
    def strike(plant: BrokenPlant, chance: Random) -> Iterator[None]:
        with closing(sqlite3.connect(plant.data / database, timeout=30, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            time.sleep(chance.uniform(SHORT_SECONDS, LONG_SECONDS))
            writer.execute("ROLLBACK")
        yield

    return Kind(f"lock {database}", strike)


def fill_node(node: str) -> Kind:
    """A node's server reaches the limit of its memory, and refuses writes."""

    @contextmanager
    def strike(plant: BrokenPlant, chance: Random) -> Iterator[None]:
        with plant.server(node) as server:
            before = server.config_get("maxmemory")["maxmemory"]
            server.config_set("maxmemory", 1)
            time.sleep(chance.uniform(SHORT_SECONDS, LONG_SECONDS))
            server.config_set("maxmemory", before)
        yield

    return Kind(f"memory limit of {node}", strike)


def starve(process: str) -> Kind:
    """A process, and each of its children, gets no more address space (RLIMIT_AS)."""

    @contextmanager
    def strike(plant: BrokenPlant, chance: Random) -> Iterator[None]:
        family = plant.family(process)
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.rlimit(resource.RLIMIT_AS, (each.memory_info().vms, resource.RLIM_INFINITY))
        time.sleep(chance.uniform(SHORT_SECONDS, LONG_SECONDS))
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.rlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        yield

    return Kind(f"memory limit of {process}", strike, _limit(process))


@contextmanager
def _fill_disk(plant: BrokenPlant, chance: Random) -> Iterator[None]:
    with plant.full_disk():
        time.sleep(chance.uniform(SHORT_SECONDS, LONG_SECONDS))
    yield


@contextmanager
def _slow_disk(plant: BrokenPlant, chance: Random) -> Iterator[None]:
    with plant.slow_disk(WRITE_MILLISECONDS):
        time.sleep(chance.uniform(SHORT_SECONDS, LONG_SECONDS))
    yield


@contextmanager
def _make_disk_read_only(plant: BrokenPlant, chance: Random) -> Iterator[None]:
    with plant.read_only_disk():
        time.sleep(chance.uniform(SHORT_SECONDS, LONG_SECONDS))
    yield


def cut_links(what: str, *, requests: bool, answers: bool) -> Kind:
    """A partition between a random node's server and everything else, in one direction or in both."""

    @contextmanager
    def strike(plant: BrokenPlant, chance: Random) -> Iterator[None]:
        with plant.cut_links(chance.choice(NODES), requests=requests, answers=answers):
            time.sleep(chance.uniform(SHORT_SECONDS, LONG_SECONDS))
        yield

    return Kind(what, strike)


def damage_log(what: str, damage: Callable[[Path, str, Random], int]) -> Kind:
    """The append-only file of a random node is damaged, and its server is killed."""

    @contextmanager
    def strike(plant: BrokenPlant, chance: Random) -> Iterator[None]:
        plant.damage_log(chance.choice(NODES), damage, chance)
        yield

    return Kind(f"{what} append-only file", strike)


def step(seconds: int) -> Kind:
    """The clock is set, and set back after some time."""

    @contextmanager
    def strike(plant: BrokenPlant, chance: Random) -> Iterator[None]:
        plant.step_clock(seconds)
        time.sleep(chance.uniform(SHORT_SECONDS, LONG_SECONDS))
        plant.step_clock(0)
        yield

    return Kind(f"clock {seconds:+d} s", strike)


@contextmanager
def _kill_in_effect(plant: BrokenPlant, chance: Random) -> Iterator[None]:
    """All children of the workers, at an instant at which one has claimed a block and not acknowledged it."""
    children = plant.family("worker-jobs")[1:]
    with ExitStack() as stack:
        nodes = [stack.enter_context(plant.server(name)) for name in NODES]
        _soon(lambda: any(read_gauges(node, [QUEUE])[QUEUE]["pending_blocks"] for node in nodes), "a claim")
    send_signal(children, signal.SIGKILL)
    yield


@contextmanager
def _kill_in_action(plant: BrokenPlant, chance: Random) -> Iterator[None]:
    """The worker of the loops, when a decision is written and what it decides is not yet done."""
    process = plant.find_process("worker-control")
    database = f"file:{plant.data / 'weir.sqlite3'}?mode=ro"
    with closing(sqlite3.connect(database, uri=True, timeout=30, isolation_level=None)) as reader:
        (newest,) = reader.execute("SELECT coalesce(max(id), 0) FROM workers_ledgerentry").fetchone()
        question = "SELECT 1 FROM workers_ledgerentry WHERE id > ? AND action IS NOT NULL AND NOT applied"
        _soon(lambda: reader.execute(question, (newest,)).fetchone(), "an action")
    process.send_signal(signal.SIGKILL)
    yield


def _soon(condition: Callable[[], Any], what: str) -> None:
    """Raises TimeoutError."""
    deadline = time.monotonic() + SOON_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {SOON_SECONDS:g} s")
        time.sleep(0.001)


def kill_in_transfer(node: str) -> Kind:
    """What carries a plan out is killed in its middle: a node is emptied, and gets its points again."""

    @contextmanager
    def strike(plant: BrokenPlant, chance: Random) -> Iterator[None]:
        with closing(plant.log_in()) as client:
            plan = _ask(client, f"nodes/{node}/use", use="drain")["plan"]
            _execute_plan(plant, client, plan, chance)
            _execute_plan(plant, client, _ask(client, f"plans/{plan['id']}/roll-back"), chance)
        yield

    return Kind(f"kill worker-control in a transfer from {node}", strike)


def _execute_plan(plant: BrokenPlant, client: httpx.Client, plan: dict[str, Any], chance: Random) -> None:
    """Raises TimeoutError."""
    _ask(client, f"plans/{plan['id']}/approve", hash=plan["hash"])
    time.sleep(chance.uniform(0.0, SHORT_SECONDS))
    plant.find_process("worker-control").send_signal(signal.SIGKILL)
    deadline = time.monotonic() + PLAN_SECONDS
    while (state := client.get(f"/api/v1/plans/{plan['id']}").json())["state"] != "done":
        if time.monotonic() > deadline:
            raise TimeoutError(f"plan {plan['id']} is {state['state']} after {PLAN_SECONDS:g} s: {state['note']}")
        time.sleep(1.0)


def _ask(client: httpx.Client, path: str, **body: str) -> Any:
    headers = {"X-CSRFToken": client.cookies["csrftoken"], "Referer": str(client.base_url)}
    content = {**body, "reason": "A fault comes in its middle."}
    return client.post(f"/api/v1/{path}", json=content, headers=headers).raise_for_status().json()


def kinds_for(plant: BrokenPlant) -> tuple[list[Kind], dict[str, str]]:
    """(what can be broken on this plant, what can not and why)."""
    names = sorted(plant.rows())
    own = [name for name in names if name not in SERVERS]
    kinds = [strike(name) for name in names for strike in (kill, freeze)]
    kinds += [kill_child("worker-jobs"), kill_child("pipeline")]
    kinds.append(kill_in_transfer("n3"))
    kinds += [lock("weir.sqlite3"), lock("handled.sqlite3")]
    kinds += [fill_node(name) for name in names if name in NODES]
    kinds += [starve(name) for name in ("worker-jobs", "worker-control") if name in own]
    kinds += [damage_log("torn", tear), damage_log("cut", cut), damage_log("inverted bit in an", flip)]
    kinds += [Kind("kill workers in an effect", _kill_in_effect)]
    kinds += [Kind("kill worker-control in an action", _kill_in_action)]
    missing: dict[str, str] = {}
    if plant.has_slow_disk:
        kinds.append(Kind("slow disk", _slow_disk))
    else:
        missing["slow disk"] = "no C compiler is at hand (cc)"
    if plant.has_links:
        kinds.append(cut_links("lost requests to a node", requests=True, answers=False))
        kinds.append(cut_links("lost answers of a node", requests=False, answers=True))
        kinds.append(cut_links("partition of a node", requests=True, answers=True))
    else:
        missing["partitions"] = "no C compiler is at hand (cc)"
    if plant.has_read_only_disk:
        kinds.append(Kind("read-only disk", _make_disk_read_only))
    else:
        missing["read-only disk"] = "no C compiler is at hand (cc), or this user may not mount a file system"
    if plant.has_disk:
        kinds.append(Kind("disk full", _fill_disk))
    else:
        missing["disk full"] = "this user may not mount a file system"
    if plant.has_clock:
        kinds += [step(seconds) for seconds in STEPS_SECONDS]
    else:
        missing["clock"] = "no C compiler is at hand (cc)"
    return kinds, missing
