"""The first five minutes of a fresh plant, alone on its host and on one held at a load of eight; then that
plant on a starved host.

A real plant (./run) in a new folder. Held at a load of N: N processes beside it that compute without a pause, at the
same priority. Live: from the start of ./run until a snapshot says that the pipeline runs. An alert is false here, as
nothing happens but the start; so is advice to shed, a ladder's level above 0. Starved: four times as many come once the
plant is live, and nine parts in ten of the host go to them.

An incident is an alert that no other one explains; what is counted is the greatest number open at once.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.plant.running_plant import RunningPlant

LOAD = 8
CHECK_SECONDS = 0.5
LIMITS = {
    "calm_live_seconds": 40.0,
    "calm_alerts": 0,
    "calm_ladder_level": 0,
    "loaded_live_seconds": 60.0,
    "loaded_alerts": 0,
    "loaded_ladder_level": 0,
    "starved_open_incidents": 2,
}


@dataclass
class Seen:
    """What was seen of a plant: its alerts by number, in words; the most open at once; the highest level."""

    alerts: dict[int, str] = field(default_factory=dict)
    open_incidents: int = 0
    ladder_level: int = 0

    def check(self, snapshot: dict[str, Any]) -> None:
        firing = [alert for alert in snapshot["alerts"] if alert.get("state", "firing") == "firing"]
        self.alerts |= {alert["id"]: alert.get("sentence") or alert["title"] for alert in firing}
        self.open_incidents = max(self.open_incidents, sum(alert.get("under") is None for alert in firing))
        ladders = [loop for loop in snapshot["loops"].values() if loop["law"] == "ladder"]
        self.ladder_level = max([self.ladder_level, *(int(loop.get("actuator") or 0) for loop in ladders)])


@contextmanager
def hold_load(load: int) -> Iterator[None]:
    """So many processes that compute."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def watch(plant: RunningPlant, seen: Seen, until: float) -> float | None:
    """Looks on until that instant (monotonic); when the pipeline was first seen to run, if it was."""
    live = None
    while time.monotonic() < until:
        if snapshot := plant.snapshot():
            seen.check(snapshot)
            if live is None and (snapshot["pipeline"] or {}).get("state") == "running":
                live = time.monotonic()
        time.sleep(CHECK_SECONDS)
    return live


def first_minutes(load: int, seconds: float) -> tuple[dict[str, float], Seen]:
    """Seconds to the page and until live, alerts and the highest level of a ladder."""
    seen = Seen()
    with hold_load(load), RunningPlant() as plant:
        live = watch(plant, seen, plant.started + seconds)
        return {
            "page_seconds": plant.seconds_to_page,
            "live_seconds": seconds if live is None else live - plant.started,
            "alerts": len(seen.alerts),
            "ladder_level": seen.ladder_level,
        }, seen


def starve(seconds: float) -> Seen:
    seen = Seen()
    with RunningPlant() as plant:
        plant.wait_until(lambda s: (s["pipeline"] or {}).get("state") == "running", 240, "the pipeline runs")
        with hold_load(4 * LOAD):
            watch(plant, seen, time.monotonic() + seconds)
    return seen


def run(seconds: float) -> dict[str, Any]:
    calm, of_calm = first_minutes(0, 100 * seconds)
    loaded, of_loaded = first_minutes(LOAD, 100 * seconds)
    hungry = starve(200 * seconds)
    figures: dict[str, float] = {
        **{f"calm_{name}": value for name, value in calm.items()},
        **{f"loaded_{name}": value for name, value in loaded.items()},
        "starved_open_incidents": hungry.open_incidents,
        "starved_alerts": len(hungry.alerts),
    }
    return {
        "figures": figures,
        "peers": {f"limit_{name}": value for name, value in LIMITS.items()},
        "ratio": {name: figures[name] / limit for name, limit in LIMITS.items() if limit},
        "said": {
            "calm": list(of_calm.alerts.values()),
            "loaded": list(of_loaded.alerts.values()),
            "starved": list(hungry.alerts.values()),
        },
    }
