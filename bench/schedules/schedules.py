"""`bench schedules`: random combined faults on a small plant, and a checker of the documented promises.

Each schedule (`bench.schedules.plant`) combines two to six faults, chosen by its seed: crashes, pauses, partitions in
both directions and in one, and clocks that are set by up to an hour. The plant then recovers, processes what waits, and
`bench.schedules.checker` reads the history of every event. A schedule with a violation is repeated with fewer faults
while it still fails.

Then bugs are planted (`bench.schedules.planted`). `schedules_until` says within how many schedules the checker found
each. The histories of schedules with violations stay in HISTORIES.

The seed decides the faults and their times. The machine decides the rest, so a seed may not fail every time.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.faults.preloaded import CLOCK
from bench.schedules.planted import BUGS

COUNT, SEED, LANES = 20, 1, 4
MAX_BUG_SCHEDULES = 20
HISTORIES = Path(tempfile.gettempdir(), "weir-schedule-histories")
ROOT = Path(__file__).resolve().parents[2]


def explain_missing() -> str:
    """Return why schedules can't run here; "" if they can."""
    if os.geteuid() != 0 or subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode:
        return "Network namespaces need root privileges and the command ip; install iproute2."
    return ""


def run(seconds: float, count: int = COUNT, seed: int = SEED) -> dict[str, Any]:
    """Run `count` schedules from `seed`, and then those of each planted bug. Raises `RuntimeError`."""
    if reason := explain_missing():
        raise RuntimeError(reason)
    with tempfile.TemporaryDirectory(prefix="weir-schedules-") as folder:
        library = CLOCK.build(Path(folder))
        rows = run_lanes(library, count, seed, keep=HISTORIES)
        discoveries = {bug: _find_bug(library, seed, bug) for bug in BUGS}
    broken = [row for row in rows if row["violations"]]
    return {
        "figures": {"violating_schedules": len(broken), "undiscovered_bugs": list(discoveries.values()).count(0)},
        "peers": {"limit_violating_schedules": 0, "limit_undiscovered_bugs": 0},
        "ratio": {},
        "schedules": len(rows),
        "operations": sum(row["operations"] for row in rows),
        "acknowledged_calls": sum(row["acknowledged"] for row in rows),
        "faults": sum(len(row["faults"]) for row in rows),
        "schedules_until": discoveries,
        "broken": broken,
        "notes": [line for row in broken for line in describe(row)],
    }


def run_lanes(
    library: Path | None, count: int, seed: int, bug: str = "", keep: Path | None = None
) -> list[dict[str, Any]]:
    """Return the rows of schedules that LANES processes run. Raises `RuntimeError` if one of them fails.

    keep: where the histories of schedules with violations stay.
    """
    environment = {**os.environ, **({"LD_PRELOAD": str(library)} if library else {})}
    lanes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bench.schedules.lane",
                str(lane),
                str(seed + lane),
                str(count - lane),
                str(LANES),
                bug,
                str(keep or ""),
            ],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for lane in range(min(LANES, count))
    ]
    outputs = [lane.communicate()[0] for lane in lanes]
    if any(lane.returncode for lane in lanes):
        raise RuntimeError("A process that runs schedules has failed; see its error above.")
    rows = [json.loads(line) for output in outputs for line in output.splitlines()]
    return sorted(rows, key=lambda row: int(row["seed"]))


def _find_bug(library: Path | None, seed: int, bug: str) -> int:
    """Return how many schedules ran until the checker found a planted bug; 0 if it did not."""
    rows = run_lanes(library, MAX_BUG_SCHEDULES, seed, bug)
    found = [row["seed"] - seed + 1 for row in rows if row["violations"]]
    return min(found, default=0)


def describe(row: dict[str, Any]) -> Sequence[str]:
    """Return lines about a schedule with violations."""
    lines = [f"Seed {row['seed']} breaks promises. The fewest faults that show it:"]
    lines += [f"  {fault}" for fault in row["shrunk"] or row["faults"]]
    for violation in row["violations"]:
        lines.append(f"  {violation['promise']}: {', '.join(violation['subjects'])}")
        lines += [f"    {operation}" for operation in violation["operations"]]
    return lines
