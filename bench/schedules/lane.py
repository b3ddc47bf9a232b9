"""Runs schedules one after the other, and prints one JSON line for each: `python -m bench.schedules.lane`.

A process of its own, since the library of the hosts' clocks must be preloaded.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.schedules.checker import Violation, check_history
from bench.schedules.faults import HOSTS, WORK_SECONDS, Fault, draw_faults, shrink_faults
from bench.schedules.history import read_history
from bench.schedules.hosts import open_hosts
from bench.schedules.plant import SmallPlant, open_plant
from bench.schedules.planted import BUGS
from bench.schedules.programs import IDLE_SECONDS

REPEATS = 2  # of a shrunk schedule before it counts as passing: timing decides, too


@dataclass(frozen=True)
class ScheduleResult:
    """The result of a schedule. operations: number of operations in its history."""

    seed: int
    faults: list[Fault]
    violations: list[Violation]
    operations: int
    acknowledged: int

    def to_row(self, shrunk: Sequence[Fault]) -> dict[str, Any]:
        shown = [asdict(violation) for violation in self.violations]
        faults = [fault.describe() for fault in self.faults]
        counts = {"operations": self.operations, "acknowledged": self.acknowledged}
        row = {"seed": self.seed, **counts, "faults": faults, "violations": shown}
        return row | {"shrunk": [fault.describe() for fault in shrunk]} if shown else row


@dataclass(frozen=True)
class Lane:
    """The plant of one lane. keep: where the histories of schedules with violations stay."""

    plant: SmallPlant
    folder: Path
    keep: Path | None = None

    def run(self, seed: int, faults: Sequence[Fault]) -> ScheduleResult:
        """Run a schedule, and check its history."""
        folder = Path(tempfile.mkdtemp(prefix=f"s{seed}-", dir=self.folder))
        self.plant.begin(seed, folder)
        self.plant.play(faults, WORK_SECONDS)
        was_drained = self.plant.drain()
        self.plant.stop_programs()
        self.plant.finish_moves()
        final = self.plant.read_final_state()
        history = read_history(folder / "history")
        violations = check_history(history, final, IDLE_SECONDS, was_drained)
        acknowledged = sum(operation.kind == "publish" and operation.outcome == "ok" for operation in history)
        if violations and self.keep is not None:
            shutil.copytree(folder / "history", self.keep / folder.name, dirs_exist_ok=True)
        shutil.rmtree(folder)
        return ScheduleResult(seed, list(faults), violations, len(history), acknowledged)

    def shrink(self, result: ScheduleResult) -> list[Fault]:
        """Return the fewest faults that still break one of the same promises."""
        promises = {violation.promise for violation in result.violations}

        def fails(faults: Sequence[Fault]) -> bool:
            return any(
                promises & {violation.promise for violation in self.run(result.seed, faults).violations}
                for _ in range(REPEATS)
            )

        return shrink_faults(result.faults, fails)


def main(lane: int, first_seed: int, count: int, step: int, bug: str, keep: str) -> None:
    if bug:
        BUGS[bug]()
    library = os.environ.get("LD_PRELOAD")
    with (
        tempfile.TemporaryDirectory(prefix="weir-schedules-") as name,
        open_hosts(HOSTS, lane, Path(name)) as hosts,
        open_plant(hosts, Path(name), Path(library) if library else None) as plant,
    ):
        here = Lane(plant, Path(name), Path(keep) if keep else None)
        for seed in range(first_seed, first_seed + count, step):
            result = here.run(seed, draw_faults(seed))
            # A planted bug needs no shrinking: it ends with its discovery.
            shrunk = here.shrink(result) if result.violations and not bug else []
            print(json.dumps(result.to_row(shrunk)), flush=True)
            if bug and result.violations:
                return


if __name__ == "__main__":
    lane, first_seed, count, step, bug, keep = [*sys.argv[1:], "", ""][:6]
    main(int(lane), int(first_seed), int(count), int(step), bug, keep)
