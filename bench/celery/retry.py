"""Retry plans of a stock app: each task is sent once although Weir's processes are killed, at a pace that a downstream
service can take.

The control worker sends the plan, and the observer records what becomes of its tasks. A part of the tasks fail in the
app's worker beforehand, with their events. When the plan stops because this host is too busy for its lowest rate, it is
continued, as a person would do.
"""

import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.celery.brokers import RABBITMQ
from bench.celery.downstream import CAPACITY, run_downstream
from bench.celery.retry_installation import ALL, CONTROL, OBSERVER, RetryInstallation

TASKS = 100_000
MIN_KILL_SECONDS, MAX_KILL_SECONDS = 3.0, 20.0
KILLS = 8
# Processes to kill, in turn. The first kill is during staging, the others during sending.
KILLED = (ALL, (CONTROL,), (CONTROL,), (OBSERVER,))
PACED_SECONDS = 120.0
# Of the downstream service's other users: 99 % within this time.
OBJECTIVE_SECONDS = 0.25
MAX_SECONDS = 2_700.0
ENDED = ("done", "ended")


def run(seconds: float, count: int = TASKS) -> dict[str, Any]:
    """Retry `count` tasks on each broker; the pace is measured for two minutes. `seconds` is not needed."""
    figures: dict[str, float] = {}
    for kind in ("valkey", *(["rabbitmq"] if RABBITMQ else [])):
        with tempfile.TemporaryDirectory(prefix="weir-retry-") as folder:
            exact = _retry_with_kills(kind, Path(folder) / "exact", count)
            figures |= {f"{kind}_{name}": value for name, value in exact.items()}
    with tempfile.TemporaryDirectory(prefix="weir-retry-") as folder:
        paced = _retry_paced(Path(folder))
    limits = {"highest_rate": CAPACITY, "own_p99_seconds": OBJECTIVE_SECONDS}
    return {
        "figures": {**figures, **paced},
        "peers": {f"limit_{name}": limit for name, limit in limits.items()},
        "ratio": {name: paced[name] / limit for name, limit in limits.items()},
    }


def _retry_with_kills(kind: str, folder: Path, count: int) -> dict[str, float]:
    with RetryInstallation(kind, folder, count, 150.0, 5_000.0) as weir:
        weir.start(CONTROL)
        began_at, stops, killer = time.monotonic(), 0, _Killer(weir)
        while (state := weir.read_plan())["state"] not in ENDED and time.monotonic() < began_at + MAX_SECONDS:
            if state["state"] == "paused":
                weir.resume()
                stops += 1
            killer.step(state, time.monotonic())
            time.sleep(0.5)
        took_seconds = time.monotonic() - began_at
        runs = weir.count_runs(count)
    return {
        "dry_run_seconds": weir.prepared["dry_run_seconds"],
        "tasks": count,
        "kills": killer.kills,
        "kills_while_sending": killer.while_sending,
        "stops": stops,
        "failed_again": state["failed"],
        "sent_twice": sum(times - 1 for times in runs.values()),
        "forgotten": count - len(runs),
        "tasks_per_second": len(runs) / took_seconds,
    }


class _Killer:
    """Kills processes of Weir at random moments, each time after the plan has made progress, and starts them again."""

    def __init__(self, weir: RetryInstallation) -> None:
        self._weir, self._chance = weir, random.Random(1)
        self._sent, self._due_at = 0, 0.0
        self.kills = self.while_sending = 0

    def step(self, state: dict[str, Any], now: float) -> None:
        if state["state"] == "staging" and not self.kills:
            self._kill(state)
        elif state["state"] == "sending" and 0 < self.kills < KILLS and state["sent"] > self._sent:
            self._due_at = self._due_at or now + self._chance.uniform(MIN_KILL_SECONDS, MAX_KILL_SECONDS)
            if now >= self._due_at:
                self._kill(state)
                self.while_sending += 1

    def _kill(self, state: dict[str, Any]) -> None:
        names = KILLED[self.kills % len(KILLED)]
        for name in names:
            self._weir.kill(name)
        for name in names:
            self._weir.start(name)
        self._sent, self._due_at = state["sent"], 0.0
        self.kills += 1


def _retry_paced(folder: Path) -> dict[str, float]:
    with ExitStack() as stack:
        downstream = stack.enter_context(run_downstream())
        count = round(CAPACITY * PACED_SECONDS)
        weir = stack.enter_context(RetryInstallation("valkey", folder, count, 0.5, 5_000.0, downstream.port))
        downstream.own_seconds.clear()
        weir.start(CONTROL)
        time.sleep(PACED_SECONDS)
        state = weir.read_plan()
        took = sorted(downstream.own_seconds)
    return {
        "highest_rate": downstream.compute_highest_rate(),
        "last_rate": state["rate"],
        "paced_tasks": float(len(downstream.arrivals)),
        "own_p99_seconds": took[int(0.99 * (len(took) - 1))],
    }
