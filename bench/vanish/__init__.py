"""Weir vanishes while it steers: how long until each system is under its own control again.

In each round a small installation starts, pauses a queue, limits a task, and resizes the pool of a stock Celery app on
Valkey and of one on RabbitMQ, and holds a ScaledObject and a HorizontalPodAutoscaler. Then all of its processes are
killed (SIGKILL) at a random moment between two renewals. In every third round this happens while it is still setting
values. The guards run beside the systems all the time. `kmock` represents the Kubernetes API: nothing scales there.

The lease is BENCH_LEASE_SECONDS instead of 45 s, so that a round is short. `late_seconds` is the time after the end of
a lease that began at the kill. With a lease of 45 s, at most 15 s are left of one minute.

`--seconds` is how long rounds are started; at least MIN_ROUNDS are.
"""

import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from bench.celery.brokers import rabbitmq, valkey
from bench.celery.stock_workers import Rival, StockWorker
from bench.vanish.cluster import NAMESPACE, Cluster, cluster
from bench.vanish.installation import VanishingWeir
from bench.vanish.systems import HPA_BEFORE, PROCESSES, QUEUE, TASK, StockApp, describe_held
from workers.plants.guard.manifests import GUARD_FILE
from workers.plants.guard.weir_guard import SETTLE_SECONDS

MIN_ROUNDS, BENCH_LEASE_SECONDS, MAX_LATE_SECONDS = 3, 9.0, 15.0
GIVE_UP_SECONDS = 120.0
VALKEY, RABBITMQ, KUBERNETES = "on-valkey", "on-rabbitmq", "on-kubernetes"
# A larger pool stays on RabbitMQ (`workers.plants.foreign.celery_app.leases`), so only Valkey gets one.
SIZES = {VALKEY: (1, 5), RABBITMQ: (1,)}


def run(seconds: float) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-vanish-")))
        weir, apps, k8s = _start_systems(stack, folder)
        late_seconds, notes = _run_rounds(weir, apps, k8s, time.monotonic() + seconds)
    restored = [late for late in late_seconds if late is not None]
    rounds = len(late_seconds)
    slowest = max(restored) if len(restored) == rounds else None
    return {
        "figures": {"rounds": rounds, "restored_rounds": len(restored), "late_seconds": slowest},
        "peers": {"limit_restored_rounds": rounds, "limit_late_seconds": MAX_LATE_SECONDS},
        "ratio": {"within_60_seconds": sum(late <= MAX_LATE_SECONDS for late in restored) / rounds},
        "at_least": ["restored_rounds"],
        "notes": [f"Lease: {BENCH_LEASE_SECONDS:g} s (default: 45 s). Kubernetes: kmock, without controllers.", *notes],
    }


def _start_systems(stack: ExitStack, folder: Path) -> tuple[VanishingWeir, Mapping[str, StockApp], Cluster]:
    urls = {
        VALKEY: stack.enter_context(valkey(["shop"]))["shop"],
        RABBITMQ: stack.enter_context(rabbitmq(["shop"], folder / "rabbitmq"))["shop"],
    }
    k8s = stack.enter_context(cluster())
    k8s.deployment("parse")
    k8s.deployment("score")
    k8s.scaled_object("parse")
    k8s.hpa("score", behavior=dict(HPA_BEFORE))
    for name, url in urls.items():
        rival = Rival(name, ("--concurrency", str(PROCESSES), "--hostname", f"{name}@host"))
        stack.enter_context(StockWorker(rival, url, folder / name)).begin()
    stack.enter_context(_guard("celery", urls[VALKEY]))
    stack.enter_context(_guard("kubernetes", "--namespace", NAMESPACE, "--url", k8s.url))
    plants = {name: ["celery", url] for name, url in urls.items()}
    workloads = ["--option", f"namespace={NAMESPACE}", "--option", "workloads=parse > score"]
    plants[KUBERNETES] = ["kubernetes", k8s.url, *workloads]
    weir = stack.enter_context(VanishingWeir(folder / "weir", BENCH_LEASE_SECONDS, plants))
    return weir, {name: StockApp(url) for name, url in urls.items()}, k8s


@contextmanager
def _guard(*arguments: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, str(GUARD_FILE), *arguments], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _run_rounds(
    weir: VanishingWeir, apps: Mapping[str, StockApp], k8s: Cluster, until: float
) -> tuple[list[float | None], list[str]]:
    """Return for each round how late its slowest system was (None: it was not restored), and what went wrong."""
    chance, late_seconds, notes = random.Random(1), list[float | None](), list[str]()
    while len(late_seconds) < MIN_ROUNDS or time.monotonic() < until:
        number = len(late_seconds)
        weir.start()
        steering = threading.Thread(target=_steer, args=(weir, apps, number), daemon=True)
        steering.start()
        if number % 3 == 2:
            time.sleep(chance.uniform(1.0, 8.0))  # while it is still setting values: each takes about a second
        else:
            steering.join()
            _require_steered(apps, k8s)
            time.sleep(chance.uniform(0.0, BENCH_LEASE_SECONDS / 3))
        weir.vanish()
        killed_at = time.monotonic()
        steering.join()
        left, seconds = _wait_for_own_control(apps, k8s, killed_at)
        late_seconds.append(None if left else max(0.0, seconds - BENCH_LEASE_SECONDS))
        if left:
            notes.append(f"Round {number + 1}: not restored within {GIVE_UP_SECONDS:g} s: {left}")
            break
        sys.stderr.write(f"round {number + 1}: {seconds:.1f} s\n")
    return late_seconds, notes


def _steer(weir: VanishingWeir, apps: Mapping[str, StockApp], number: int) -> None:
    """Set everything by the API, as a user does. It fails at any point if Weir vanishes meanwhile."""
    with suppress(httpx.TransportError):
        for name, app in apps.items():
            for left in weir.api.get(f"/plants/{name}/interventions").json()["in_force"]:  # of the last round
                weir.post(f"/plants/{name}/interventions/undo", kind=left["kind"], subject=left["subject"])
            weir.post(f"/plants/{name}/interventions", kind="pause", subject=QUEUE)
            weir.post(f"/plants/{name}/interventions", kind="rate_limit", subject=TASK, value="1/m")
            tasks = SIZES[name][number % len(SIZES[name])]
            weir.post(f"/plants/{name}/tasks", operator=app.read()["worker"], tasks=tasks)
        for operator in ("parse", "score"):
            weir.post(f"/plants/{KUBERNETES}/tasks", operator=operator, tasks=3 + number % 3)


def _require_steered(apps: Mapping[str, StockApp], k8s: Cluster) -> None:
    """Raise RuntimeError unless Weir has set something at each system: the round would prove nothing."""
    for name, app in apps.items():
        found = app.read()
        if found["queues"] or not found["limit"]:
            raise RuntimeError(f"{name} is not steered: {found}")
    if not describe_held(k8s):
        raise RuntimeError("the autoscalers are not held")


def _wait_for_own_control(apps: Mapping[str, StockApp], k8s: Cluster, killed_at: float) -> tuple[str, float]:
    """Return what differs after GIVE_UP_SECONDS, and the seconds until nothing differed any more.

    The systems are read for longer than a lease in any case: a command that was on its way may take effect after the
    first reading.
    """
    seconds: float | None = None
    while True:
        differences = {name: app.describe_difference() for name, app in apps.items()}
        differences[KUBERNETES] = describe_held(k8s)
        left = "; ".join(f"{name}: {text}" for name, text in differences.items() if text)
        elapsed = time.monotonic() - killed_at
        seconds = None if left else elapsed if seconds is None else seconds
        if seconds is not None and elapsed > BENCH_LEASE_SECONDS + SETTLE_SECONDS:
            return "", seconds
        if elapsed > GIVE_UP_SECONDS:
            return left or "nothing for long enough", elapsed
        time.sleep(0.5)
