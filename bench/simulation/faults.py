"""The faults of a run: a schedule that follows from the seed, of which a reduction may leave some out."""

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from bench.simulation.calls import (
    CALL_FAULTS,
    COMMAND_MOMENTS,
    CRASH_AFTER,
    CRASH_BEFORE,
    FREEZE,
    POST,
    STATEMENT_MOMENTS,
    CallFault,
)
from bench.simulation.plant import Installation

MIN_GAP_SECONDS, MAX_GAP_SECONDS = 0.2, 6.0
MAX_CALLS = 60  # more than a tick of all loops makes
MEAN_CALLS_AFTER_MOMENT, MAX_FREEZE_SECONDS = 2.5, 30.0
STEERED_SHARE = 0.7
HOUR_SECONDS = 3_600.0
CUT, STOP_NODE, STOP_CONTROL, DATABASE = "cut link", "stop node", "lose control server", "database away"
REQUEST, REPLY = "request", "reply"


@dataclass(frozen=True)
class Fault:
    """A fault.

    at: seconds since the start of the run; seconds: how long it lasts; other: the other end of a link; calls: how many
    calls of the process come before the one that it hits; moment: what it waits for from then on (`calls.MOMENTS`), ""
    for nothing. A fault at a moment hits the process that calls then, or the server or the link that it uses.
    """

    number: int
    at: float
    kind: str
    target: str
    seconds: float = 0.0
    other: str = ""
    calls: int = 0
    moment: str = ""

    def __str__(self) -> str:
        ends = f" → {self.other}" if self.other else ""
        lasting = f" for {self.seconds:.2f} s" if self.seconds else ""
        later = f" after {self.calls} calls" if self.calls else ""
        where = f"{self.target}{ends}" + (f" at {self.moment}" if self.moment else "")
        return f"{self.at:10.3f} s  {self.kind}: {where}{lasting}{later}"


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
    FREEZE: (8, _build_freeze),
    CUT: (2, _build_cut),
    "slow host": (
        1,
        lambda numbers, targets: (
            numbers.choice([*targets.hosts, *targets.nodes, *targets.control_hosts]),
            numbers.uniform(1, 10),
            "",
        ),
    ),
    "restart server": (1, lambda numbers, targets: (numbers.choice(targets.control_hosts), numbers.random() * 5, "")),
    STOP_CONTROL: (1, lambda numbers, targets: ("primary", numbers.uniform(2, 20), "")),
    STOP_NODE: (1.5, lambda numbers, targets: (numbers.choice(targets.nodes), numbers.uniform(1, 40), "")),
    "empty control server": (0.3, lambda numbers, targets: (targets.control_hosts[0], 0.0, "")),
    "isolate server": (1, lambda numbers, targets: (numbers.choice(targets.control_hosts), numbers.uniform(2, 20), "")),
    DATABASE: (0.7, lambda numbers, targets: ("database", numbers.random() * 6, "")),
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


# Kind → the moments that it may wait for, and how often each is chosen
STEERABLE: Mapping[str, Mapping[str, float]] = {
    **dict.fromkeys(CALL_FAULTS, COMMAND_MOMENTS),
    **{kind: {**COMMAND_MOMENTS, **STATEMENT_MOMENTS} for kind in (FREEZE, CRASH_BEFORE, CRASH_AFTER)},
    **{
        kind: {name: weight for name, weight in COMMAND_MOMENTS.items() if name != POST.decode()}
        for kind in (CUT, STOP_CONTROL)
    },
    STOP_NODE: {name: weight for name, weight in COMMAND_MOMENTS.items() if name.startswith("segment/")},
    DATABASE: STATEMENT_MOMENTS,
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
            fault = _build_fault(numbers, Fault(len(schedule), at, numbers.choice(chosen), ""), targets)
            if fault.kind in STEERABLE and numbers.random() < STEERED_SHARE:
                fault = _steer(numbers, fault)
            schedule.append(fault)
    return schedule


def _build_fault(numbers: random.Random, fault: Fault, targets: Targets) -> Fault:
    target, seconds, other = KINDS[fault.kind][1](numbers, targets)
    calls = numbers.randrange(MAX_CALLS) if fault.kind in (*CALL_FAULTS, FREEZE) else 0
    return replace(fault, target=target, seconds=seconds, other=other, calls=calls)


def _steer(numbers: random.Random, fault: Fault) -> Fault:
    """Return the fault at a moment instead of its time."""
    moments = STEERABLE[fault.kind]
    [moment] = numbers.choices([*moments], [*moments.values()])
    fault = replace(fault, target="caller", other="", calls=0, moment=moment)
    if fault.kind == CUT:
        return replace(fault, target=numbers.choice([REQUEST, REPLY]))
    if fault.kind == FREEZE:
        seconds = numbers.uniform(1.0, MAX_FREEZE_SECONDS)
        calls = int(numbers.expovariate(1 / MEAN_CALLS_AFTER_MOMENT))
        return replace(fault, seconds=seconds, calls=calls)
    return fault


class FaultInjector:
    """Applies the faults of a schedule to an installation, and ends them."""

    def __init__(self, plant: Installation) -> None:
        self._plant, self._scheduler, self._network = plant, plant.scheduler, plant.network
        self._calls = plant.network.faults
        self.stepped_at = 0.0  # when a clock was stepped or returned last

    def schedule(self, faults: list[Fault]) -> None:
        start = self._scheduler.starts_at
        for fault in faults:
            self._scheduler.call_at(start + fault.at, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def _begin(self, fault: Fault) -> None:
        self._scheduler.note(f"FAULT {fault}")
        if fault.moment:
            waiting = self._calls.at_moments.setdefault(fault.moment, [])
            waiting.append(lambda host: self._apply_at_call(fault, host))
        else:
            self._apply(fault)

    def _apply_at_call(self, fault: Fault, host: str) -> CallFault | None:
        """Apply a fault to a call to a host; return it if it hits nothing but the call or the caller."""
        if fault.kind in (*CALL_FAULTS, FREEZE):
            return CallFault(fault.kind, fault.seconds, fault.calls)
        process = self._scheduler.process
        assert process is not None, "only processes call"
        if fault.kind == CUT:
            ends = (process.host, host) if fault.target == REQUEST else (host, process.host)
            self._apply(replace(fault, target=ends[0], other=ends[1]))
        else:
            self._apply(replace(fault, kind=STOP_NODE if fault.kind == STOP_CONTROL else fault.kind, target=host))
        return None

    def _apply(self, fault: Fault) -> None:
        process = self._plant.processes.get(fault.target)
        if fault.kind in CALL_FAULTS:
            of_process = self._calls.by_process.setdefault(fault.target, [])
            of_process.append(CallFault(fault.kind, fault.seconds, fault.calls))
        elif fault.kind == "crash" and process is not None:
            self._plant.crash(process)
        elif fault.kind == "freeze" and process is not None:
            process.frozen_until = self._scheduler.now + fault.seconds
        elif fault.kind == FREEZE:
            of_process = self._calls.freezes.setdefault(fault.target, [])
            of_process.append(CallFault(fault.kind, fault.seconds, fault.calls))
        elif fault.kind == CUT:
            self._network.block(fault.target, fault.other)
            self._after(fault.seconds, lambda: self._network.unblock(fault.target, fault.other))
        elif fault.kind == "isolate server":
            self._isolate(fault)
        elif fault.kind == "slow host":
            self._network.slow[fault.target] = 0.3
            self._after(fault.seconds, lambda: self._network.slow.pop(fault.target, None))
        elif fault.kind == DATABASE:
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
        is_control = fault.kind == STOP_CONTROL
        server = self._plant.control if is_control else self._plant.find_server(fault.target)
        if fault.kind == "empty control server":
            # A replicated control server loses nothing as long as one of its servers is left.
            if self._plant.sentinels is None:
                server.empty()
                server.restart()
        elif server.is_up:
            server.stop()
            self._after(fault.seconds, server.start_again)

    def _step_clock(self, host: str, seconds: float) -> None:
        self.stepped_at = self._scheduler.now
        self._plant.clock_offsets[host] = self._plant.clock_offsets.get(host, 0.0) + seconds
        for process in self._plant.processes.values():
            if process.host == host:
                process.clock_offset = self._plant.clock_offsets[host]

    def _after(self, seconds: float, act: Callable[[], object]) -> None:
        self._scheduler.call_at(self._scheduler.now + seconds, lambda: (act(), None)[1])
