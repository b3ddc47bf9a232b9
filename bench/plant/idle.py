"""A plant that nobody uses, watched: does it stay calm, and what does it cost?

A real plant (./run) and its own telemetry; nobody at its pages. Watched from the instant at which everything has
started. Nothing happens, so every alert is a false one.

    alerts        that fired, of every severity
    repeated      what a loop wanted again word for word, and did not get: the same action of the same loop
    acted         what loops did to the plant, each loop's number and last reason in `said`. Workers that
                  are started for events that came (worker_rate) are its work, and counted by themselves
    imbalance     the greatest distance of a replica's share from an equal one, points (of 100)
    cores         CPU seconds of all its processes a second; what ends within the watch is counted
    ledger        bytes that the decisions of eight loops take in a day, once they are folded
    bytes         PSS: what is shared counts once; the median of samples, as batches take some for a while

`--seconds 3600` is the hour of the promise.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from statistics import median
from typing import Any

import psutil

from bench.plant import idle_ledger
from bench.plant.first_minutes import Seen
from bench.plant.running_plant import RunningPlant
from bench.plant.soak import kind_of

LIMITS = {
    "alerts": 0,
    "ladder_level": 0,
    "repeated_proposals": 0,
    "acted": 0,
    "imbalance_points": 5.0,
    "cores": 0.09,
    "bytes": 1.3e9,
    "processes": 17,
    "ledger_bytes_a_day": 15e6,
}
START_SECONDS = 300.0
# They start a worker for events that wait: on an idle plant, those of its own telemetry.
WORKING_LAWS = ("worker_rate",)
KEEPING = ("Keep ", "Would keep ")
CHECK_SECONDS = 1.0
MEMORY_SECONDS = 30.0
ROWS = 200


def imbalance_points(snapshot: dict[str, Any]) -> float:
    """Of the application whose replicas' shares are least equal."""
    worst = 0.0
    for application in ((snapshot["pipeline"] or {}).get("applications") or {}).values():
        shares = [row["share"] for row in application["replicas"].values()]
        worst = max([worst, *(100 * abs(share - 1 / len(shares)) for share in shares)])
    return worst


def busy_seconds(plant: RunningPlant) -> dict[int, tuple[str, float]]:
    """CPU seconds by process, with those of its children that have ended."""
    seconds_by_pid: dict[int, tuple[str, float]] = {}
    for process in [psutil.Process(plant.process.pid), *plant.processes()]:
        try:
            times = process.cpu_times()
            own = times.user + times.system
            ended = times.children_user + times.children_system
            seconds_by_pid[process.pid] = (kind_of(process), own + ended)
        except psutil.Error:
            continue
    return seconds_by_pid


def cores_by_kind(
    before: dict[int, tuple[str, float]], after: dict[int, tuple[str, float]], seconds: float
) -> dict[str, float]:
    """What each kind of process used of a core, on average."""
    used: defaultdict[str, float] = defaultdict(float)
    for pid, (kind, total) in after.items():
        used[kind] += total - before.get(pid, (kind, 0.0))[1]
    return {kind: total / seconds for kind, total in used.items()}


def memory_bytes(plant: RunningPlant) -> float:
    total = 0.0
    for process in [psutil.Process(plant.process.pid), *plant.processes()]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total


def decisions(plant: RunningPlant, since: datetime) -> list[dict[str, Any]]:
    """What loops decided to do since then; the plant's API has them."""
    rows: list[dict[str, Any]] = []
    with closing(plant.log_in()) as person:
        before: int | None = None
        while True:
            wanted = {"acted": "true", "from": since.isoformat(), "rows": str(ROWS)}
            wanted |= {} if before is None else {"before": str(before)}
            page = person.get("/api/v1/ledger", params=wanted).raise_for_status().json()
            rows += page["entries"]
            if (before := page["next"]) is None:
                return rows


def is_kept(row: dict[str, Any]) -> bool:
    """What there is, set once more so that it lasts on: neither an action nor a proposal."""
    return str(row["reason"]).startswith(KEEPING)


def list_repeated(rows: Iterable[dict[str, Any]]) -> list[str]:
    """What was proposed more than once and not done: the loop, its action and how often."""
    proposed = Counter(
        (row["loop"], json.dumps(row["action"], sort_keys=True))
        for row in rows
        if not row["applied"] and not is_kept(row)
    )
    return [f"{loop}: {action}, {count} times" for (loop, action), count in sorted(proposed.items()) if count > 1]


def group_by_loop(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Loop → how often it acted, and why at last; the rows are the newest first."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        found[row["loop"]].append(f"{row['at']}: {row['reason']}")
    return {loop: f"{len(reasons)} times, at last {reasons[0]}" for loop, reasons in sorted(found.items())}


def run(seconds: float) -> dict[str, Any]:
    seen, imbalance = Seen(), 0.0
    with RunningPlant() as plant:
        plant.wait_until(lambda snapshot: not snapshot["parts"].get("starting"), START_SECONDS, "all has started")
        since, began, before = datetime.now(UTC), time.monotonic(), busy_seconds(plant)
        held, measured_at = list[float](), -MEMORY_SECONDS
        while (passed := time.monotonic() - began) < seconds:
            if snapshot := plant.snapshot():
                seen.check(snapshot)
                imbalance = max(imbalance, imbalance_points(snapshot))
            if passed - measured_at >= MEMORY_SECONDS:
                held.append(memory_bytes(plant))
                measured_at = passed
            time.sleep(CHECK_SECONDS)
        passed = time.monotonic() - began
        cores = cores_by_kind(before, busy_seconds(plant), passed)
        processes = 1 + len(plant.processes())
        rows = decisions(plant, since)
        ledger_bytes = idle_ledger.bytes_a_day(plant.data, passed)
    said, acted = list_repeated(rows), [row for row in rows if row["applied"] and not is_kept(row)]
    work = [row for row in acted if row["law"] in WORKING_LAWS]
    figures: dict[str, float] = {
        "watched_seconds": passed,
        "alerts": len(seen.alerts),
        "ladder_level": seen.ladder_level,
        "decided": len(rows),
        "repeated_proposals": len(said),
        "acted": len(acted) - len(work),
        "workers_started": len(work),
        "imbalance_points": imbalance,
        "cores": sum(cores.values()),
        "bytes": median(held),
        "bytes_most": max(held),
        "bytes_last": held[-1],
        "processes": processes,
        "ledger_bytes_a_day": ledger_bytes,
        **{f"{kind}_cores": share for kind, share in sorted(cores.items())},
    }
    return {
        "figures": figures,
        "peers": {f"limit_{name}": value for name, value in LIMITS.items()},
        "ratio": {name: figures[name] / limit for name, limit in LIMITS.items() if limit},
        "said": {"alerts": list(seen.alerts.values()), "repeated": said, "acted": group_by_loop(acted)},
    }
