"""One run of the simulation: an installation, hours of virtual time, and the violations that were found.

A run alternates between episodes of faults, each followed by a time to recover and a check, and quiet times. In a quiet
time nothing would happen but the same ticks again, so all processes are stopped, and the virtual time is set to the end
of it. The next episode starts with whatever has expired meanwhile. `active_seconds` says how much was simulated.
"""

import gc
import random
import time
import traceback
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.simulation import context, database, installation, network, programs
from bench.simulation.faults import KINDS, Fault, FaultInjector, Targets, build_schedule
from bench.simulation.invariants import Invariants
from bench.simulation.names import NODES
from bench.simulation.plant import Installation
from bench.simulation.scheduler import Scheduler, VirtualThread
from bench.simulation.servers import Words
from workers.models import Plan

STARTS_AT = datetime(2026, 1, 5, tzinfo=UTC).timestamp()
WARM_SECONDS = 6.0
# The installation has to recover within this time; most often it has sooner, and the check ends.
MIN_HEAL_SECONDS, MAX_HEAL_SECONDS = 12.0, 90.0
MIN_FAULT_SECONDS, MAX_FAULT_SECONDS = 10.0, 50.0
CHECK_SECONDS, HEAL_CHECK_SECONDS = 2.0, 5.0
HOUR_SECONDS = 3_600.0
MIN_EPISODES, MAX_EPISODES = 2, 4
MAX_QUIET_HOURS = 504.0  # three weeks
PROBED_SHARE, LOST_SECONDS, RETURNED_SECONDS = 0.12, 60.0, 100.0
PROBE_SECONDS = LOST_SECONDS + RETURNED_SECONDS


@dataclass
class RunResult:
    """The result of a run. kept: numbers of the faults that were applied; trace: the last steps before a violation."""

    seed: int
    hours: float = 0.0
    active_seconds: float = 0.0
    steps: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def plan_episodes(seed: int) -> list[tuple[float, float]]:
    """Return the episodes of a run: when its processes start, and when its faults end, in s since the start.

    A run is short, so that it can be repeated within a minute.
    """
    numbers, episodes, at = random.Random(f"{seed} episodes"), list[tuple[float, float]](), 0.0
    for _ in range(numbers.randint(MIN_EPISODES, MAX_EPISODES)):
        end = at + WARM_SECONDS + numbers.uniform(MIN_FAULT_SECONDS, MAX_FAULT_SECONDS)
        episodes.append((at, end))
        at = end + MAX_HEAL_SECONDS + PROBE_SECONDS + numbers.random() * MAX_QUIET_HOURS * HOUR_SECONDS
    return episodes


class Run:
    """A run in this process, which is used for no other one."""

    def __init__(
        self,
        seed: int,
        template: Path,
        folder: Path,
        only: Collection[int] | None = None,
        kinds: Collection[str] = tuple(KINDS),
    ) -> None:
        """Prepare the run. only: numbers of the faults to apply; None: all. kinds: of faults."""
        self._seed, self._only, self._kinds = seed, only, kinds
        self.result = RunResult(seed)
        self._numbers = random.Random(f"{seed} probes")
        installation.RANDOMNESS.numbers.seed(f"{seed} ids")
        random.seed(f"{seed} global")
        database.open_copy(template, folder)
        self._scheduler = Scheduler(seed, STARTS_AT)
        context.set_scheduler(self._scheduler)
        self._network = network.Network(self._scheduler, seed)
        network.install(self._network)
        self._database = database.DatabaseFault(self._network.faults)
        database.install(self._database, seed)

    def execute(self) -> RunResult:
        """Simulate, and return what was found."""
        began, began_cpu = time.perf_counter(), time.process_time()
        # A run creates little garbage, and a collection goes through all that Django has built.
        gc.disable()
        programs.separate_plant_clocks()
        plant = Installation(self._scheduler, self._network, self._database, self._seed)
        programs.replace_surroundings(plant)
        plant.start_programs(programs.list_programs(plant))
        invariants, injector = Invariants(plant), FaultInjector(plant)

        def note(words: Words, reply: object, thread: VirtualThread | None) -> None:
            if thread is not None:
                invariants.leases.note(words, reply, thread.process.name, self._scheduler.now)

        for server in plant.servers:
            server.on_command.append(note)
        episodes = plan_episodes(self._seed)
        targets = Targets(plant.programs, plant.hosts, list(NODES), [server.host for server in plant.control_servers])
        faults = build_schedule(
            self._seed, [(start + WARM_SECONDS, end) for start, end in episodes], targets, self._kinds
        )
        self.result.faults = [fault for fault in faults if self._only is None or fault.number in self._only]
        injector.schedule(self.result.faults)
        try:
            for start, end in episodes:
                self._scheduler.now = max(self._scheduler.now, STARTS_AT + start)
                plant.is_load_on = True
                plant.resume()
                if not self._run_until(STARTS_AT + end, invariants, injector):
                    break
                plant.heal()
                if not (self._await_recovery(invariants, injector) and self._probe(plant, invariants, injector)):
                    break
                self.result.active_seconds += self._scheduler.now - STARTS_AT - start
                plant.suspend()
                gc.collect()
        except Exception:
            invariants.violations.append("The simulation itself failed: " + traceback.format_exc())
        self._fill_result(plant, invariants)
        self.result.wall_seconds = time.perf_counter() - began
        self.result.cpu_seconds = time.process_time() - began_cpu
        return self.result

    def _run_until(self, until: float, invariants: Invariants, injector: FaultInjector) -> bool:
        """Run, and check every few seconds; return False at the first violation."""
        while self._scheduler.now < until:
            self._scheduler.run(min(until, self._scheduler.now + CHECK_SECONDS))
            invariants.clock_stepped_at = injector.stepped_at
            invariants.check()
            if invariants.violations:
                return False
        return True

    def _await_recovery(self, invariants: Invariants, injector: FaultInjector) -> bool:
        """Run until everything has recovered; return False at a violation, or if it has not in time."""
        began = self._scheduler.now
        if not self._run_until(began + MIN_HEAL_SECONDS, invariants, injector):
            return False
        while invariants.list_unhealed() and self._scheduler.now < began + MAX_HEAL_SECONDS:
            if not self._run_until(self._scheduler.now + HEAL_CHECK_SECONDS, invariants, injector):
                return False
        invariants.violations += invariants.list_unhealed()
        return not invariants.violations

    def _probe(self, plant: Installation, invariants: Invariants, injector: FaultInjector) -> bool:
        """Lose a node after some of the episodes: an alert must fire, reach its receiver, and end."""
        if self._numbers.random() >= PROBED_SHARE:
            return True
        node = self._numbers.choice(list(NODES))
        plant.nodes[node].stop()
        if not self._run_until(self._scheduler.now + LOST_SECONDS, invariants, injector):
            return False
        invariants.check_lost(node)
        plant.nodes[node].restart()
        if not self._run_until(self._scheduler.now + RETURNED_SECONDS, invariants, injector):
            return False
        invariants.check_returned(node)
        return not invariants.violations

    def _fill_result(self, plant: Installation, invariants: Invariants) -> None:
        result, scheduler = self.result, self._scheduler
        result.violations = invariants.violations
        result.steps = scheduler.steps
        if result.violations:
            result.trace = scheduler.format_trace()
        result.hours = (scheduler.now - STARTS_AT) / HOUR_SECONDS
        result.counts = {
            "workers_started": len(plant.seen.started),
            "messages_delivered": len(plant.seen.delivered),
            "blocks_published": len(plant.seen.published),
            "blocks_handled": len(plant.seen.handled),
            "tasks_retried": len(plant.seen.retried),
            "plans_done": Plan.objects.filter(state=Plan.State.DONE).count(),
            "blocks_moved": sum(step["blocks"] for plan in Plan.objects.all() for step in plan.progress),
            "failovers": plant.sentinels.failovers if plant.sentinels else 0,
        }
