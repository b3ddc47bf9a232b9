"""The simulated installation: its hosts, servers, and processes.

Processes run Weir's own code: agents, observers, control workers (ticks, plans, recovery, upkeep, retry plans), and
alerters. Two of each of the last three compete for every lease. Simulated are only what is around them: the producers,
the worker host, the person, the receiver of alerts, and the supervisor, which starts a crashed process again.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from bench.simulation.database import DatabaseFault
from bench.simulation.errors import EXPECTED, describe_error
from bench.simulation.names import BROKER_HOST, BROKER_PORT, CONTROL_HOSTS, CONTROL_PORT, NODES
from bench.simulation.network import Network
from bench.simulation.scheduler import Scheduler, VirtualProcess
from bench.simulation.sentinels import SentinelGroup
from bench.simulation.servers import VirtualServer

RESTART_SECONDS = (0.5, 3.0)


def is_replicated(seed: int) -> bool:
    """Return whether the control server of a run has replicas. Every other run has them."""
    return seed % 2 == 1


@dataclass
class Delivered:
    """A message that the receiver has accepted. key: of the message, the same if it is sent again."""

    at: float
    key: str
    kind: str
    alerts: list[dict[str, Any]]


@dataclass
class Observations:
    """What happened outside of Weir, as the invariants compare it with Weir's records.

    started: worker id → how often a worker of this id has begun its work. published, handled: by the ids of blocks.
    retried: id of a task that a retry plan has sent → how often it arrived. requested: loop → when the remedy ladder
    last requested a decision of it.
    """

    started: dict[str, int] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    published: dict[str, float] = field(default_factory=dict)
    handled: dict[str, int] = field(default_factory=dict)
    retried: dict[str, int] = field(default_factory=dict)
    delivered: list[Delivered] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    requested: dict[str, float] = field(default_factory=dict)


class Installation:
    """The installation of one run."""

    def __init__(self, scheduler: Scheduler, network: Network, database: DatabaseFault, seed: int) -> None:
        self.scheduler, self.network, self.database = scheduler, network, database
        self.random = random.Random(f"{seed} installation")
        self.seen = Observations()
        self.processes: dict[str, VirtualProcess] = {}
        self.receiver_fails_until = 0.0
        self.is_load_on = True
        self.is_suspended = False
        self.clock_offsets: dict[str, float] = {}  # host → its clock minus the virtual time
        self.control_servers = [
            network.add(VirtualServer(f"control-{host}", host, CONTROL_PORT)) for host in CONTROL_HOSTS
        ]
        self.sentinels: SentinelGroup | None = None
        if is_replicated(seed):
            self.sentinels = SentinelGroup(scheduler, network, self.control_servers)
            for sentinel in self.sentinels.sentinels:
                network.add(sentinel)
        settings.REDIS_URL = self.sentinels.url if self.sentinels else f"redis://{CONTROL_HOSTS[0]}:{CONTROL_PORT}/0"
        self.broker = network.add(VirtualServer("broker", BROKER_HOST, BROKER_PORT))
        self.nodes = {name: network.add(VirtualServer(name, name, 7001)) for name in NODES}
        self._programs: dict[str, tuple[str, Callable[[], None]]] = {}
        network.faults.crash = self.crash

    def start_programs(self, programs: Iterable[tuple[str, str, Callable[[], None]]]) -> None:
        """Start a process of each program. programs: name, host, and what runs."""
        for name, host, program in programs:
            self._programs[name] = host, program
            self.start(name)

    @property
    def servers(self) -> list[VirtualServer]:
        return [*self.control_servers, self.broker, *self.nodes.values()]

    @property
    def control(self) -> VirtualServer:
        """Return the control server, or its primary."""
        return self.control_servers[0] if self.sentinels is None else self.sentinels.primary

    def find_server(self, host: str) -> VirtualServer:
        return next(server for server in self.servers if server.host == host)

    @property
    def hosts(self) -> list[str]:
        return sorted({host for host, _ in self._programs.values()})

    @property
    def programs(self) -> list[str]:
        return list(self._programs)

    def start(self, name: str) -> None:
        """Start a process of a program."""
        host, program = self._programs[name]
        process = VirtualProcess(name, host)
        process.clock_offset = self.clock_offsets.get(host, 0.0)
        self.processes[name] = process
        self.scheduler.start_thread(process, lambda: self._run(process, program), "main")

    def crash(self, process: VirtualProcess) -> None:
        """Crash a process; the supervisor starts it again."""
        if not process.is_alive:
            return
        self.scheduler.note(f"{process.name} crashes")
        self.scheduler.kill(process)
        seconds = self.random.uniform(*RESTART_SECONDS)
        self.scheduler.call_at(self.scheduler.now + seconds, lambda: self._restart(process))

    def heal(self) -> None:
        """End all faults: what was stopped starts, and every link works."""
        self.is_load_on = False
        self.network.cut.clear()
        self.network.slow.clear()
        self.network.faults.clear()
        self.database.away_until = self.receiver_fails_until = 0.0
        for server in self.servers:
            if not server.is_up:
                server.restart()
        for process in self.processes.values():
            process.frozen_until = 0.0

    def suspend(self) -> None:
        """Stop all processes, without a chance to finish, for a quiet time."""
        self.is_suspended = True
        for process in self.processes.values():
            if process.is_alive:
                self.scheduler.kill(process)

    def resume(self) -> None:
        """Start every process that is stopped."""
        self.is_suspended = False
        for name, process in list(self.processes.items()):
            if not process.is_alive:
                self.start(name)

    def _restart(self, process: VirtualProcess) -> None:
        if self.processes[process.name] is process and not self.is_suspended:
            self.start(process.name)

    def _run(self, process: VirtualProcess, program: Callable[[], None]) -> None:
        try:
            program()
        except Exception as error:
            # A real program would exit, too, and be started again. Only an error of the environment may end it.
            if not isinstance(error, EXPECTED):
                self.seen.problems.append(f"{process.name} ended with {describe_error(error)}")
            self.scheduler.call_at(self.scheduler.now + RESTART_SECONDS[1], lambda: self._restart(process))
