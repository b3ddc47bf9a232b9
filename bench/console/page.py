"""How soon a change on the plant is in the browser, and what an idle plant costs.

A real plant (./run) and a real browser. A change: an event published to `alert` at a random instant; it is seen when
the queue's page counts it. Idle: only the telemetry of this host runs. Then a plant of two hundred nodes
(`bench.console.large_page`).
"""

import random
import time
from typing import Any

import numpy as np
import psutil
from playwright.sync_api import Page

from bench.console import large_page
from bench.console.browser import chromium
from bench.plant.running_plant import RunningPlant
from queues.publishing.client import Client

LIMITS = {"change_to_browser_p95_seconds": 1.5, "idle_cores": 0.35, "idle_memory_bytes": 2.5e9}

# What the page's own store holds is on the screen with the next frame, 16 ms later at most.
WATCH = """async ([queue, wanted]) => {
  const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  const { store } = await import(loaded.find((name) => /\\/js\\/.*\\bstore(\\.[0-9a-f]+)?\\.js$/.test(name)));
  const inserted = () => Object.values(store.snapshot?.queues?.[queue]?.containers ?? {})
    .reduce((sum, container) => sum + (container.inserted_events ?? 0), 0);
  while (inserted() < wanted) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return Date.now() / 1000;
}"""


def count_inserted(plant: RunningPlant, queue: str) -> int:
    snapshot = plant.snapshot() or {"queues": {queue: {"containers": {}}}}
    return sum(c["inserted_events"] or 0 for c in snapshot["queues"][queue]["containers"].values())


def sign_in(page: Page, plant: RunningPlant) -> None:
    page.goto(f"{plant.url}/login/")
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", plant.password)
    page.press("input[name=password]", "Enter")
    page.wait_for_selector("[data-bind]")


def changes_to_browser(plant: RunningPlant, samples: int) -> list[float]:
    """Seconds from the acknowledged publish to the page, at instants spread over the second."""
    chance = random.Random(7)
    with chromium() as browser, Client(plant.control_url(), producer="bench") as client:
        page = browser.new_page()
        sign_in(page, plant)
        page.goto(f"{plant.url}/queues/alert/")  # where a queue's containers are sent whole
        page.wait_for_selector("body[data-connection=live]")
        seen = []
        for _ in range(samples):
            time.sleep(chance.uniform(1.2, 2.2))  # what was published before has been counted by then
            wanted = count_inserted(plant, "alert") + 1
            client.publish("alert", [{"type": "bench", "source": "bench", "key": "k", "value": 1.0}])
            published = time.time()
            seen.append(page.evaluate(WATCH, ["alert", wanted]) - published)
    return seen


def cpu_seconds(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        # Children that ended in between are counted by their parents.
        total += times.user + times.system + times.children_user + times.children_system
    return total


def memory_bytes(processes: list[psutil.Process]) -> int:
    """Proportional set sizes: pages that forked processes share count once."""
    total = 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total


def idle_cost(plant: RunningPlant, seconds: float) -> tuple[float, int]:
    before, start = cpu_seconds(plant.processes()), time.monotonic()
    time.sleep(seconds)
    processes = plant.processes()
    return (cpu_seconds(processes) - before) / (time.monotonic() - start), memory_bytes(processes)


def run(seconds: float) -> dict[str, Any]:
    with RunningPlant() as plant:
        plant.wait_until(lambda s: (s["pipeline"] or {}).get("state") == "running", 120, "the pipeline runs")
        time.sleep(max(15.0, seconds))  # the start is over: compilers warm, first batches done
        cores, memory = idle_cost(plant, max(30.0, 10 * seconds))
        changes = changes_to_browser(plant, samples=max(40, int(10 * seconds)))
        second_start = plant.seconds_to_page
    large = large_page.measure()
    figures = {
        "change_to_browser_p95_seconds": float(np.quantile(changes, 0.95)),
        "change_to_browser_p50_seconds": float(np.quantile(changes, 0.5)),
        "idle_cores": cores,
        "idle_memory_bytes": memory,
        "seconds_to_page": second_start,
        **large,
    }
    limits = {**LIMITS, **large_page.LIMITS}
    return {
        "figures": figures,
        "peers": {f"limit_{name}": value for name, value in limits.items()},
        "ratio": {name: figures[name] / limit for name, limit in limits.items()},
    }
