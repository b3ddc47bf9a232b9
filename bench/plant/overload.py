"""What a person sees of a console of which far too much is asked, on a host whose cores are all taken.

A real plant (./run). Beside it, all at once: processes that compute without a pause, two for each core; a thousand
sockets; 300 programs that read the API and 150 that publish by it, each with its next request as soon as it may
(`bench.plant.overload_callers`). Meanwhile a person opens one page after the other.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

import httpx
import numpy as np

from bench.plant.first_minutes import hold_load
from bench.plant.running_plant import ROOT, RunningPlant

LIMITS = {"person_p95_seconds": 1.0, "person_refused": 0, "failures": 0, "web_grew_bytes": 300e6}
PAGES = ("/", "/queues/", "/loops/", "/alerts/", "/ledger/", "/pipeline/")
START_SECONDS, SETTLE_SECONDS, PAUSE_SECONDS = 300.0, 5.0, 0.3
MIN_SECONDS = 30.0


def token(plant: RunningPlant, name: str, role: str) -> str:
    """One for a program."""
    return str(json.loads(plant.manage("token", name, "--role", role, "--json").stdout)["token"])


def open_pages(person: httpx.Client, seconds: float) -> tuple[list[float], int]:
    """How long each page took, in seconds, and how many were refused."""
    until, took, refused = time.monotonic() + seconds, list[float](), 0
    while time.monotonic() < until:
        for page in PAGES:
            began = time.monotonic()
            try:
                refused += person.get(page, timeout=30).status_code != 200
            except httpx.HTTPError:
                refused += 1
            took.append(time.monotonic() - began)
            time.sleep(PAUSE_SECONDS)
    return took, refused


def run(seconds: float) -> dict[str, Any]:
    """At least half a minute: so long take the sockets alone to be opened or refused."""
    seconds = max(MIN_SECONDS, seconds)
    with RunningPlant() as plant:
        plant.wait_until(lambda seen: not seen["parts"].get("starting"), START_SECONDS, "everything has started")
        person, reader = plant.log_in(), token(plant, "reader", "viewer")
        publisher = token(plant, "publisher", "producer")
        cookie = "; ".join(f"{name}={value}" for name, value in person.cookies.items())
        web = plant.process_matching("console.asgi")
        calm, _ = open_pages(person, SETTLE_SECONDS)
        before = web.memory_info().rss
        with hold_load(2 * (os.cpu_count() or 1)):
            asking = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "bench.plant.overload_callers",
                    plant.url,
                    cookie,
                    reader,
                    publisher,
                    str(seconds),
                ],
                stdout=subprocess.PIPE,
                cwd=ROOT,
                text=True,
            )
            took, refused = open_pages(person, seconds)
            threads, after = web.num_threads(), web.memory_info().rss
            heard = json.loads(asking.communicate(timeout=300)[0])
    answers = {f"{who}_{status}": float(count) for who, all_ in heard.items() for status, count in all_.items()}
    failures = sum(count for name, count in answers.items() if name.rpartition("_")[2] in ("500", "502", "504"))
    figures = {
        "calm_p95_seconds": float(np.quantile(calm, 0.95)),
        "person_p50_seconds": float(np.quantile(took, 0.5)),
        "person_p95_seconds": float(np.quantile(took, 0.95)),
        "person_p99_seconds": float(np.quantile(took, 0.99)),
        "person_pages": float(len(took)),
        "person_refused": float(refused),
        "web_threads": float(threads),
        "web_grew_bytes": float(after - before),
        "failures": failures,
    }
    return {
        "figures": {**figures, **answers},
        "peers": {f"limit_{name}": value for name, value in LIMITS.items()},
        "ratio": {name: figures[name] / limit for name, limit in LIMITS.items() if limit},
    }
