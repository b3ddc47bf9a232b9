"""The faults of a run: a schedule that follows from the seed, of which a reduction may leave some out."""

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bench.simulation.network import CALL_FAULTS, CallFault
from bench.simulation.plant import FREEZE_UNDER_LEASE, Installation
from bench.simulation.scheduler import VirtualThread
from bench.simulation.servers import Words
from queues.lua.script import load_script

MIN_GAP_SECONDS, MAX_GAP_SECONDS = 0.2, 12.0
MAX_CALLS = 60  # more than a tick of all loops makes
MAX_CALLS_UNDER_LEASE = 12
FREEZE_AT_CALL = "freeze at a call"
ACQUIRE = load_script("lease/acquire").encode()
HOUR_SECONDS = 3_600.0


@dataclass(frozen=True)
class Fault:
    """A fault.

    at: seconds since the start of the run; seconds: how long it lasts; other: the other end of a link; calls: how many
    calls of the process come before the one that it hits.
    """

    number: int
    at: float
    kind: str
    target: str
    seconds: float = 0.0
    other: str = ""
    calls: int = 0

    def __str__(self) -> str:
        ends = f" → {self.other}" if self.other else ""
        lasting = f" for {self.seconds:.2f} s" if self.seconds else ""
        later = f" after {self.calls} calls" if self.calls else ""
        return f"{self.at:10.3f} s  {self.kind}: {self.target}{ends}{lasting}{later}"


@dataclass(frozen=True)
class Targets:
    """The possible targets of a fault: names of processes, hosts, and servers."""

    processes: list[str]
    hosts: list[str]
    nodes: list[str]
    control_hosts: list[str]

    @property
    def leaders(self) -> list[str]:
        """Return the processes that hold leases, which are hit most often."""
        return [name for name in self.processes if name.startswith(("control", "alerter", "observer"))]


Build = Callable[[random.Random, Targets], tuple[str, float, str]]  # target, seconds, other


def _pick_process(numbers: random.Random, targets: Targets) -> str:
    return numbers.choice(targets.leaders if numbers.random() < 0.8 else targets.processes)


def _build_freeze(numbers: random.Random, targets: Targets) -> tuple[str, float, str]:
    return _pick_process(numbers, targets), numbers.choice([1.0, 3.0, 5.0, 8.0, 20.0, 40.0]) * numbers.random(), ""


def _build_cut(numbers: random.Random, targets: Targets) -> tuple[str, float, str]:
    clients = [host for host in targets.hosts if host not in targets.nodes]
    ends = [numbers.choice(clients), numbers.choice([*targets.nodes, *targets.control_hosts])]
    numbers.shuffle(ends)
    return ends[0], numbers.expovariate(1 / 6.0), ends[1]


# Kind → how often it is chosen, and what it hits
KINDS: Mapping[str, tuple[float, Build]] = {
    "crash": (3, lambda numbers, targets: (_pick_process(numbers, targets), 0.0, "")),
    "freeze": (4, _build_freeze),
    FREEZE_AT_CALL: (3, _build_freeze),
    FREEZE_UNDER_LEASE: (4, lambda numbers, targets: (numbers.choice(targets.leaders), numbers.uniform(1, 30), "")),
    "cut link": (2, _build_cut),
    "slow host": (
        1,
        lambda numbers, targets: (
            numbers.choice([*targets.hosts, *targets.nodes, *targets.control_hosts]),
            numbers.uniform(1, 10),
            "",
        ),
    ),
    "restart server": (1, lambda numbers, targets: (numbers.choice(targets.control_hosts), numbers.random() * 5, "")),
    "lose control server": (1, lambda numbers, targets: ("primary", numbers.uniform(2, 20), "")),
    "stop node": (1.5, lambda numbers, targets: (numbers.choice(targets.nodes), numbers.uniform(1, 40), "")),
    "empty control server": (0.3, lambda numbers, targets: (targets.control_hosts[0], 0.0, "")),
    "isolate server": (1, lambda numbers, targets: (numbers.choice(targets.control_hosts), numbers.uniform(2, 20), "")),
    "database away": (0.7, lambda numbers, targets: ("database", numbers.random() * 6, "")),
    "clock step": (
        0.5,
        lambda numbers, targets: (
            numbers.choice(targets.hosts),
            numbers.choice([-1, 1]) * HOUR_SECONDS * numbers.random(),
            "",
        ),
    ),
    "receiver fails": (0.5, lambda numbers, targets: ("desk", numbers.uniform(1, 30), "")),
    **{
        kind: (2, lambda numbers, targets: (_pick_process(numbers, targets), numbers.expovariate(1 / 2.0), ""))
        for kind in CALL_FAULTS
    },
}


def build_schedule(
    seed: int, episodes: list[tuple[float, float]], targets: Targets, kinds: Collection[str] = tuple(KINDS)
) -> list[Fault]:
    """Return the faults of a run, of these kinds.

    episodes: (start, end) of the times with faults, in seconds since the start.
    """
    numbers, schedule = random.Random(f"{seed} faults"), list[Fault]()
    names = [name for name in KINDS if name in kinds]
    weights = [KINDS[name][0] for name in names]
    for start, end in episodes:
        # Few kinds at a time: combinations of two or three find more than all at once.
        chosen = numbers.choices(names, weights, k=numbers.randint(1, 5))
        gap, at = numbers.uniform(MIN_GAP_SECONDS, MAX_GAP_SECONDS), start
        while (at := at + numbers.expovariate(1 / gap)) < end:
            kind = numbers.choice(chosen)
            target, seconds, other = KINDS[kind][1](numbers, targets)
            most = MAX_CALLS_UNDER_LEASE if kind == FREEZE_UNDER_LEASE else MAX_CALLS
            calls = numbers.randrange(most) if kind in (*CALL_FAULTS, FREEZE_AT_CALL, FREEZE_UNDER_LEASE) else 0
            schedule.append(Fault(len(schedule), at, kind, target, seconds, other, calls))
    return schedule


class FaultInjector:
    """Applies the faults of a schedule to an installation, and ends them."""

    def __init__(self, plant: Installation) -> None:
        self._plant, self._scheduler, self._network = plant, plant.scheduler, plant.network
        self.stepped_at = 0.0  # when a clock was stepped or returned last
        self._under_lease: dict[str, list[CallFault]] = {}

    def schedule(self, faults: list[Fault]) -> None:
        start = self._scheduler.starts_at
        for fault in faults:
            self._scheduler.call_at(start + fault.at, lambda fault=fault: self._apply(fault))  # type: ignore[misc]

    def forget(self) -> None:
        """Forget the faults that wait for a lease."""
        self._under_lease.clear()

    def note_command(self, words: Words, thread: VirtualThread) -> None:
        """Let a fault that waits for a lease hit one of the thread's calls after it has requested the lease."""
        waiting = self._under_lease.get(thread.process.name)
        if words[0].upper() == b"EVAL" and words[1] == ACQUIRE and waiting:
            thread.memory[FREEZE_UNDER_LEASE] = waiting.pop(0)

    def _apply(self, fault: Fault) -> None:
        self._scheduler.note(f"FAULT {fault}")
        process = self._plant.processes.get(fault.target)
        if fault.kind in CALL_FAULTS:
            self._network.faults.setdefault(fault.target, []).append(CallFault(fault.kind, fault.seconds, fault.calls))
        elif fault.kind == "crash" and process is not None:
            self._plant.crash(process)
        elif fault.kind == "freeze" and process is not None:
            process.frozen_until = self._scheduler.now + fault.seconds
        elif fault.kind == FREEZE_AT_CALL:
            self._plant.freezes.setdefault(fault.target, []).append(CallFault(fault.kind, fault.seconds, fault.calls))
        elif fault.kind == FREEZE_UNDER_LEASE:
            self._under_lease.setdefault(fault.target, []).append(CallFault(fault.kind, fault.seconds, fault.calls))
        elif fault.kind == "cut link":
            self._network.block(fault.target, fault.other)
            self._after(fault.seconds, lambda: self._network.unblock(fault.target, fault.other))
        elif fault.kind == "isolate server":
            self._isolate(fault)
        elif fault.kind == "slow host":
            self._network.slow[fault.target] = 0.3
            self._after(fault.seconds, lambda: self._network.slow.pop(fault.target, None))
        elif fault.kind == "database away":
            self._plant.database.away_until = self._scheduler.now + fault.seconds
        elif fault.kind == "receiver fails":
            self._plant.receiver_fails_until = self._scheduler.now + fault.seconds
        elif fault.kind == "clock step":
            self._step_clock(fault.target, fault.seconds)
            self._after(30.0, lambda: self._step_clock(fault.target, -fault.seconds))
        else:
            self._apply_to_server(fault)

    def _isolate(self, fault: Fault) -> None:
        """Cut the links between a server and the other servers of its kind. Clients still reach it."""
        others = [server.host for server in self._plant.control_servers if server.host != fault.target]
        links = [link for other in others for link in ((fault.target, other), (other, fault.target))]
        for link in links:
            self._network.block(*link)
            self._after(fault.seconds, lambda link=link: self._network.unblock(*link))  # type: ignore[misc]

    def _apply_to_server(self, fault: Fault) -> None:
        is_control = fault.kind == "lose control server"
        server = self._plant.control if is_control else self._plant.find_server(fault.target)
        if fault.kind == "empty control server":
            # A replicated control server loses nothing as long as one of its servers is left.
            if self._plant.sentinels is None:
                server.empty()
                server.restart()
        elif server.is_up:
            server.stop()
            self._after(fault.seconds, server.restart)

    def _step_clock(self, host: str, seconds: float) -> None:
        self.stepped_at = self._scheduler.now
        self._plant.clock_offsets[host] = self._plant.clock_offsets.get(host, 0.0) + seconds
        for process in self._plant.processes.values():
            if process.host == host:
                process.clock_offset = self._plant.clock_offsets[host]

    def _after(self, seconds: float, act: Callable[[], object]) -> None:
        self._scheduler.call_at(self._scheduler.now + seconds, lambda: (act(), None)[1])
