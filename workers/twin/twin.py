"""The twin: loops tick on a simulated plant exactly as they tick on a real one.

Each call of `pass_time` ends a period of the scenario's model, usually a second. Then everything happens in the order
and at the times of a real plant: nodes and hosts report on the full second, the observer publishes a snapshot 0.2 s
later, and 0.4 s after the full second the due loops decide on it (`workers.control.tick.evaluate_loop`) and act. The
loops, their targets, intervals, parameters, guards, and modes are those that ship (`LoopKind`). There is no database,
Redis, or Celery: loops and ledger entries are unsaved rows.
"""

from collections import deque
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any

from common.errors import WeirError
from controllers import catalog
from controllers.framework.law import assumes_applied
from workers.control.engine import is_due, is_resting
from workers.control.kinds.registry import get_kind
from workers.control.ledger import ledger
from workers.control.ledger.ledger import EvaluatedTick, SettledAction
from workers.control.tick import KEEPING, build_undone_memory, evaluate_loop
from workers.coordination.tick import TICK_AT_SECONDS
from workers.models import LedgerEntry, Loop
from workers.placement import proposals
from workers.snapshot.control_record import build_loop_status
from workers.snapshot.observer import OBSERVE_AT_SECONDS
from workers.twin.simulated_plant import SimulatedInventory, SimulatedPlant

MAX_ENTRIES = 10_000
Parameters = Mapping[str, Any]


class Twin:
    """The loops of some laws on a simulated plant.

    `loops` and `last_entries` are by name. `entries` has the newest decisions of all loops, the newest last.
    """

    def __init__(
        self,
        plant: SimulatedPlant,
        laws: Collection[str],
        modes: Mapping[str, str] | None = None,
        parameters: Mapping[str, Parameters] | None = None,
    ) -> None:
        """Create the loops that these laws have at the plant, as they ship.

        modes, parameters: values by law that a person sets before the run, such as a limit that the scenario requires.
        Don't set parameters that tune the loop.
        """
        self.plant = plant
        self.entries: deque[LedgerEntry] = deque(maxlen=MAX_ENTRIES)
        self.last_entries: dict[str, LedgerEntry] = {}
        self.loops: dict[str, Loop] = {}
        self._observe()  # A plant is observed before it has loops.
        self.loops = {loop.name: loop for law in laws for loop in build_loops(law, plant)}
        for number, (_, loop) in enumerate(sorted(self.loops.items()), 1):
            loop.pk = number
            loop.mode = (modes or {}).get(loop.law, loop.mode)
            loop.parameters = {**loop.parameters, **(parameters or {}).get(loop.law, {})}
        plant.plans.rebalancing = next(
            (loop for loop in self.loops.values() if loop.law == proposals.REBALANCING), None
        )
        self._numbers, self._unjudged = count(1), list[LedgerEntry]()

    def pass_time(self, seconds: float = 1.0) -> list[LedgerEntry]:
        """Advance the clock by this time, observe, tick the due loops, and return their entries."""
        clock = self.plant.clock
        clock.now += seconds
        self._observe()
        full_second = clock.now
        clock.now = full_second + TICK_AT_SECONDS
        entries = self._tick(datetime.fromtimestamp(clock.now, UTC))
        clock.now = full_second
        return entries

    def _observe(self) -> None:
        """Let the plant report at this full second, and publish its snapshot."""
        clock = self.plant.clock
        full_second = clock.now
        self.plant.beat()
        clock.now = full_second + OBSERVE_AT_SECONDS
        loops = sorted(self.loops.items())
        self.plant.publish({name: build_loop_status(loop, self.last_entries.get(name), {}) for name, loop in loops})
        clock.now = full_second

    def _tick(self, now: datetime) -> list[LedgerEntry]:
        snapshot = self.plant.observe()
        self._judge(now)
        due = [loop for _, loop in sorted(self.loops.items()) if is_due(loop.ticked_at, loop.interval_seconds, now)]
        ticks: list[EvaluatedTick] = []
        for loop in due:
            if is_resting(loop, snapshot, now):
                loop.ticked_at = now
            else:
                ticks.append(evaluate_loop(loop, [], snapshot, now, loop.fence + 1, recalls=False))
        for tick in ticks:
            tick.remember(now)
            tick.entry.pk = next(self._numbers)
        for tick in ticks:
            self._act(tick.loop, tick.entry)
        for name in self.plant.requested & self.loops.keys():
            self.loops[name].request_decision()
        self.plant.requested.clear()
        return [tick.entry for tick in ticks]

    def _act(self, loop: Loop, entry: LedgerEntry) -> None:
        """Apply the decision if the loop's mode allows it. Proposals stay without approval."""
        kind = get_kind(loop.law)
        try:
            if ledger.is_applied_by_tick(entry):
                kind.actuator(entry, loop, self.plant)
                entry.applied = True
            elif entry.mode in KEEPING and kind.keeper is not None:
                kind.keeper(entry, loop, self.plant)
        except WeirError as error:
            entry.error, entry.verdict = f"{type(error).__name__}: {error}", LedgerEntry.Verdict.NO_ACTION
            if assumes_applied(catalog.get_law(loop.law)):
                loop.state = build_undone_memory(entry, loop)
        self.entries.append(entry)
        self.last_entries[loop.name] = entry
        if entry.verdict == LedgerEntry.Verdict.CHECKING:
            self._unjudged.append(entry)

    def _judge(self, now: datetime) -> None:
        """Compare the expected with the actual effects of the actions that have settled."""
        due = [entry for entry in self._unjudged if entry.judge_at is not None and entry.judge_at <= now]
        for entry in due:
            loop = entry.loop
            action = SettledAction(entry.pk, entry.at, entry.expected, entry.outcome, loop.law, loop.target)
            entry.outcome, entry.verdict = ledger.judge_action(action, now, self.plant.observe())
            self._unjudged.remove(entry)


def build_loops(law: str, plant: SimulatedPlant) -> list[Loop]:
    """Build the loops that a law has at the plant, as they ship."""
    kind = get_kind(law)
    return [
        Loop(name=name, **kind.begin(start)) for name, start in kind.targets(SimulatedInventory(plant)).loops.items()
    ]
