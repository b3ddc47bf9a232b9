"""A small plant for schedules: a control server, three nodes, a producer, two workers, and two movers.

Each has a host of its own (`bench.schedules.hosts`). The servers are emptied between two schedules. They keep all
that a killed process has written, as on a host that stays up.
"""

import heapq
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import redis

from bench.faults.preloaded import CLOCK
from bench.queues.node_servers import write_topology
from bench.schedules import programs
from bench.schedules.checker import FinalState, NodeState
from bench.schedules.faults import CLOCK as CLOCK_STEP
from bench.schedules.faults import CRASH, ONE_WAY, OVERTAKE, PAUSE, PROGRAMS, SERVERS, WORKERS, Fault
from bench.schedules.history import Recorder
from bench.schedules.hosts import HostProcess, Hosts
from bench.schedules.programs import CORRECTED, NODES, QUEUE, STOPPED, Program
from queues import keys
from queues.control.replies import expect_bytes
from queues.events.block import decode
from queues.nodes.server import ServerConfig, prepare_server_command
from queues.segments.dead_letters import DeadLetters
from queues.segments.gauge import GROUP
from queues.segments.segment import Segment
from workers.placement.transfer import Route

PORT = 6379
MAXMEMORY_BYTES = 256 * 2**20
START_SECONDS, DRAIN_SECONDS, POLL_SECONDS = 20.0, 30.0, 0.02
ANSWER_SECONDS, WATCH_SECONDS = 2.0, 0.05  # the longest wait for an answer
MAX_PENDING = 1_000
DATABASES = 16  # of a server
RUNS = {"p": programs.produce, "w": programs.consume, "m": programs.move}


@dataclass
class SmallPlant:
    """The plant of one schedule after the other. Its servers start with the first; `end` stops what runs."""

    hosts: Hosts
    folder: Path
    library: Path | None  # of the servers' clocks
    _servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _programs: dict[str, HostProcess] = field(default_factory=dict)
    _schedule: Path = field(init=False)  # the folder of the current schedule
    _seed: int = 0
    # Of the schedule. Each has another database of the servers than the one before, whose last packets may arrive late.
    _number: int = 0

    def begin(self, seed: int, folder: Path) -> None:
        """Begin a schedule with empty servers. folder: of its history and its databases."""
        self._seed, self._schedule, self._number = seed, folder, self._number + 1
        self._watched = {name: self._connect(name, WATCH_SECONDS) for name in NODES}
        (folder / "history").mkdir(parents=True)
        self._recorder = Recorder(folder / "history", "faults")
        programs.create_fences(folder)
        for name in SERVERS:
            if name not in self._servers:
                self._start_server(name)
        for name in SERVERS:
            self._await_server(name)
            with self._connect(name) as server:
                server.flushall()
        write_topology(self._get_url("control"), QUEUE, {name: self._get_url(name) for name in NODES})
        for place, name in enumerate(PROGRAMS):
            self._start_program(name, place)

    def end(self) -> None:
        self.stop_programs()
        for server in self._servers.values():
            server.kill()
            server.wait()

    def play(self, faults: Sequence[Fault], work_seconds: float) -> None:
        """Inject the faults at their times, then end all of them, and stop publishing."""
        began = time.monotonic()
        steps = [(began + fault.at_seconds, place, self._strike(fault)) for place, fault in enumerate(faults)]
        heapq.heapify(steps)
        while steps:
            at_seconds, place, strike = heapq.heappop(steps)
            time.sleep(max(0.0, at_seconds - time.monotonic()))
            pause_seconds = next(strike, None)
            if pause_seconds is not None:
                heapq.heappush(steps, (time.monotonic() + pause_seconds, place, strike))
        time.sleep(max(0.0, began + work_seconds - time.monotonic()))
        (self._schedule / CORRECTED).touch()
        (self._schedule / STOPPED).touch()

    def _strike(self, fault: Fault) -> Iterator[float]:
        """Inject a fault, and end it. Yields the seconds until each next step."""
        if fault.kind == OVERTAKE:
            yield from self._overtake(fault)
        else:
            self._inject(fault)
            yield fault.seconds
            self._remove(fault)

    def _overtake(self, fault: Fault) -> Iterator[float]:
        """Pause a worker while it holds blocks, until another worker has taken one of them."""
        deadline = time.monotonic() + fault.seconds
        held: set[tuple[str, str]] = set()
        while not held and time.monotonic() < deadline:
            if self._list_held(fault.host):
                self._pause(fault.host)
                held = self._list_held(fault.host)  # and holds as long as it is paused
                if not held:
                    self._resume(fault.host)
            yield POLL_SECONDS
        others = [worker for worker in WORKERS if worker != fault.host]
        while time.monotonic() < deadline and not any(held & self._list_held(other) for other in others):
            yield POLL_SECONDS
        yield POLL_SECONDS  # until the other worker has recorded its claim
        self._resume(fault.host)

    def _list_held(self, host: str) -> set[tuple[str, str]]:
        """Return node and ID of each entry that the worker on a host has claimed, from the nodes that answer."""
        held: set[tuple[str, str]] = set()
        for name in NODES:
            with suppress(redis.RedisError):
                node = expect_bytes(self._watched[name])
                pending = node.xpending_range(keys.SEGMENT.build(QUEUE), GROUP, "-", "+", MAX_PENDING)
                mine = [row for row in pending if row["consumer"].startswith(f"{host}-".encode())]
                held |= {(name, row["message_id"].decode()) for row in mine}
        return held

    def _inject(self, fault: Fault) -> None:
        host = fault.host
        if fault.kind == CRASH:
            self._kill(host)
        elif fault.kind == PAUSE:
            self._pause(host)
        elif fault.kind == CLOCK_STEP:
            self._set_clock(host, fault.step_seconds)
        else:
            self.hosts.cut(host, fault.others)
            if fault.kind != ONE_WAY:
                for other in fault.others:
                    self.hosts.cut(other, [host])

    def _remove(self, fault: Fault) -> None:
        host = fault.host
        if fault.kind == CRASH:
            self._restart(host)
        elif fault.kind == PAUSE:
            self._resume(host)
        elif fault.kind == CLOCK_STEP:
            self._set_clock(host, 0)
        else:
            self.hosts.mend(host, fault.others)
            if fault.kind != ONE_WAY:
                for other in fault.others:
                    self.hosts.mend(other, [host])

    def _set_clock(self, host: str, seconds: int) -> None:
        with self._recorder.record("clock", host=host, seconds=seconds):
            self.hosts.set_clock(host, seconds)

    def _kill(self, host: str) -> None:
        if host in self._servers:
            server = self._servers.pop(host)
            server.kill()
            server.wait()
        elif host in self._programs:
            self._programs.pop(host).kill()

    def _restart(self, host: str) -> None:
        if host in SERVERS and host not in self._servers:
            self._start_server(host)
        elif host in PROGRAMS and host not in self._programs:
            self._start_program(host, len(PROGRAMS) + self._seed)

    def _pause(self, host: str) -> None:
        if host in self._servers:
            self._servers[host].send_signal(signal.SIGSTOP)
        elif host in self._programs:
            self._programs[host].pause()

    def _resume(self, host: str) -> None:
        if host in self._servers:
            self._servers[host].send_signal(signal.SIGCONT)
        elif host in self._programs:
            self._programs[host].resume()

    def _start_server(self, name: str) -> None:
        folder = self.folder / name
        config = ServerConfig(PORT, folder, maxmemory_bytes=MAXMEMORY_BYTES, bind=self.hosts.get_address(name))
        environment = dict(os.environ)
        if self.library is not None:
            environment |= {"LD_PRELOAD": str(self.library), CLOCK.variable: str(self.hosts.get_clock_file(name))}
        inside = ["ip", "netns", "exec", self.hosts.get_space(name)]
        self._servers[name] = subprocess.Popen(
            [*inside, *prepare_server_command(config), "--protected-mode", "no"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _start_program(self, host: str, place: int) -> None:
        urls = {name: self._get_url(name) for name in NODES}
        program = Program(host, 1_000 * self._seed + place, self._get_url("control"), urls, self._schedule)
        run: Callable[[], None] = partial(RUNS[host[0]], program)
        self._programs[host] = HostProcess(self.hosts, host, run)

    def _get_url(self, name: str) -> str:
        return f"redis://{self.hosts.get_address(name)}:{PORT}/{self._number % DATABASES}"

    def _connect(self, name: str, seconds: float = ANSWER_SECONDS) -> redis.Redis:
        timeouts = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
        return redis.Redis.from_url(self._get_url(name), retry=None, **timeouts)

    def _await_server(self, name: str) -> None:
        """Wait until a server answers. Raises `TimeoutError`."""
        deadline = time.monotonic() + START_SECONDS
        with self._connect(name) as client:
            while True:
                with suppress(redis.RedisError):
                    client.ping()
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{name} doesn't answer")
                time.sleep(0.01)

    def drain(self) -> bool:
        """Wait until all blocks are processed; return False after DRAIN_SECONDS."""
        deadline = time.monotonic() + DRAIN_SECONDS
        for name in SERVERS:
            self._await_server(name)
        while time.monotonic() < deadline:
            if not any(self._count_waiting(name) for name in NODES):
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _count_waiting(self, name: str) -> int:
        with self._connect(name) as node:
            return int(node.xlen(keys.SEGMENT.build(QUEUE))) + int(node.hlen(keys.LEAVING.build(QUEUE)))

    def stop_programs(self) -> None:
        for name in PROGRAMS:
            self._kill(name)

    def finish_moves(self) -> None:
        """Move the dead letters that are marked for another node, as Weir does after an interrupted transfer."""
        segments = {name: Segment(self._connect(name), QUEUE) for name in NODES}
        for source, segment in segments.items():
            targets = {name: target for name, target in segments.items() if name != source}
            Route(source, segment, targets, dict.fromkeys(targets, 0)).move_letters(MAXMEMORY_BYTES)

    def read_final_state(self) -> FinalState:
        """Return what the servers and the handler's database have now."""
        path = self._schedule / "handled.sqlite3"
        effects: list[str] = []
        if path.exists():
            with closing(sqlite3.connect(path)) as database:
                effects = [event for (event,) in database.execute("SELECT id FROM handled WHERE queue = ?", [QUEUE])]
        return FinalState({name: self._read_node(name) for name in NODES}, effects)

    def _read_node(self, name: str) -> NodeState:
        with self._connect(name) as node:
            segment = Segment(node, QUEUE)
            stored = segment.read("0-0", "+")
            waiting = [decode(block.block_id, block.data).get_event_ids().to_pylist() for block in stored]
            dead = [letter.batch.column(0).to_pylist() for letter in DeadLetters(segment).read(1_000_000)]
            return NodeState(segment.get_counters(), waiting, dead)


@contextmanager
def open_plant(hosts: Hosts, folder: Path, library: Path | None) -> Iterator[SmallPlant]:
    """Return a plant on hosts, and stop all that runs in the end."""
    plant = SmallPlant(hosts, folder, library)
    try:
        yield plant
    finally:
        plant.end()
