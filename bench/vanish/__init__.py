"""All processes of Weir are killed while it controls attached systems: the time until all former values are restored.

In each round, a small installation of Weir starts. It pauses a queue, limits a task, and resizes the pool of a stock
Celery app on Valkey and of one on RabbitMQ, and it holds a ScaledObject and a HorizontalPodAutoscaler. Then all of its
processes are killed (SIGKILL) at a random moment between two renewals of the leases. In every third round, this happens
while Weir is still setting values. The guards always run beside the systems. `kmock` represents the Kubernetes API:
nothing scales there.

A round mostly waits for the end of the leases, which have their default duration (`WEIR_LEASE_SECONDS`). Therefore, up
to MAX_SITES installations run at the same time, each with its own systems. They share the servers of the two brokers.

`--count` is the number of rounds. With `--seconds`, further rounds are started for that time.
"""

import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench.celery.brokers import rabbitmq, valkey
from bench.celery.stock_workers import Rival, StockWorker
from bench.vanish.cluster import NAMESPACE, Cluster, cluster
from bench.vanish.installation import ApiRefusal, VanishingWeir
from bench.vanish.systems import HPA_BEFORE, PROCESSES, QUEUE, TASK, StockApp, WorkerSilent, describe_held
from common import environment as variables
from workers.plants.guard.manifests import GUARD_FILE
from workers.plants.guard.weir_guard import SETTLE_SECONDS

MIN_ROUNDS, MAX_SITES, MAX_REPEATED = 3, 8, 20
MAX_RESTORED_SECONDS, GIVE_UP_SECONDS = 60.0, 180.0
VALKEY, RABBITMQ, KUBERNETES = "on-valkey", "on-rabbitmq", "on-kubernetes"
# A larger pool stays on RabbitMQ (`workers.plants.foreign.celery_app.leases`), so only Valkey gets one.
SIZES = {VALKEY: (1, 5), RABBITMQ: (1,)}


@dataclass(frozen=True)
class Round:
    """A round. seconds: from the kill until all former values were restored. left: what was not restored; "": nothing.

    is_steered: whether Weir had set all values before the kill. True for rounds that are killed earlier on purpose.
    last: what was restored last.
    """

    number: int
    seconds: float
    left: str = ""
    is_steered: bool = True
    last: str = ""


class Schedule:
    """The numbers of the rounds, from 0: at least `count`, and more until the deadline. A failed round is the last."""

    def __init__(self, count: int, deadline: float) -> None:
        self._count, self._deadline = count, deadline
        self._lock, self._next, self._failed, self._repeated = threading.Lock(), 0, False, 0

    def take(self) -> int | None:
        """Return the number of the next round; None if there is none."""
        with self._lock:
            if self._failed or (self._next >= self._count and time.monotonic() >= self._deadline):
                return None
            self._next += 1
            return self._next - 1

    def fail(self) -> None:
        with self._lock:
            self._failed = True

    def repeat(self) -> None:
        """Add a round in place of one in which Weir had not set all values. After too many of these, end."""
        with self._lock:
            self._count, self._repeated = self._count + 1, self._repeated + 1
            self._failed = self._failed or self._repeated > MAX_REPEATED


def run(seconds: float, count: int = MIN_ROUNDS) -> dict[str, Any]:
    names = [f"site{number}" for number in range(min(count, MAX_SITES))]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-vanish-")))
        on_valkey = stack.enter_context(valkey(names))
        on_rabbitmq = stack.enter_context(rabbitmq(names, folder / "rabbitmq"))
        # One after the other: kmock replaces the resolver of the process, and restores it in the reverse order.
        clusters = {name: stack.enter_context(cluster()) for name in names}

        def start_site(name: str) -> Site:
            brokers = {VALKEY: on_valkey[name], RABBITMQ: on_rabbitmq[name]}
            return Site(stack, folder / name, brokers, clusters[name])

        with ThreadPoolExecutor(len(names)) as threads:
            sites = list(threads.map(start_site, names))
            schedule = Schedule(count, time.monotonic() + seconds)
            rounds = [row for rows in threads.map(lambda site: site.run_rounds(schedule), sites) for row in rows]
    rounds = [row for row in rounds if row.is_steered or row.left]
    restored = [row.seconds for row in rounds if not row.left]
    is_complete = len(restored) == len(rounds)
    return {
        "figures": {
            "rounds": len(rounds),
            "restored_rounds": len(restored),
            "restored_seconds": max(restored) if is_complete else None,
            "median_seconds": median(restored) if restored else None,
        },
        "peers": {"limit_restored_rounds": count, "limit_restored_seconds": MAX_RESTORED_SECONDS},
        "ratio": {"within_60_seconds": sum(took <= MAX_RESTORED_SECONDS for took in restored) / len(rounds)},
        "at_least": ["restored_rounds"],
        "notes": [
            f"Lease: {read_lease_seconds():g} s. Installations at the same time: {len(names)}."
            " Kubernetes: kmock, without controllers.",
            *(f"Round {row.number + 1}, {row.seconds:.0f} s: not restored: {row.left}" for row in rounds if row.left),
            *(
                f"Round {row.number + 1}, {row.seconds:.0f} s: restored last: {row.last}"
                for row in rounds
                if not row.left and row.seconds > MAX_RESTORED_SECONDS
            ),
        ],
    }


class Site:
    """An installation of Weir, and the systems that it controls."""

    def __init__(self, stack: ExitStack, folder: Path, brokers: Mapping[str, str], k8s: Cluster) -> None:
        """Start the apps and the guards. stack: ends them. brokers: system → address."""
        folder.mkdir()
        self._k8s = k8s
        self._k8s.deployment("parse")
        self._k8s.deployment("score")
        self._k8s.scaled_object("parse")
        self._k8s.hpa("score", behavior=dict(HPA_BEFORE))
        for name, url in brokers.items():
            rival = Rival(name, ("--concurrency", str(PROCESSES), "--hostname", f"{name}@host"))
            stack.enter_context(StockWorker(rival, url, folder / name)).begin()
        stack.enter_context(_guard("celery", brokers[VALKEY]))
        stack.enter_context(_guard("kubernetes", "--namespace", NAMESPACE, "--url", self._k8s.url))
        plants = {name: ["celery", url] for name, url in brokers.items()}
        workloads = ["--option", f"namespace={NAMESPACE}", "--option", "workloads=parse > score"]
        plants[KUBERNETES] = ["kubernetes", self._k8s.url, *workloads]
        self._weir = stack.enter_context(VanishingWeir(folder / "weir", plants))
        self._apps = {name: StockApp(url) for name, url in brokers.items()}

    def run_rounds(self, schedule: Schedule) -> list[Round]:
        """Run rounds until the schedule has no further one. A round with a value that was not restored is the last."""
        rounds: list[Round] = []
        try:
            while (number := schedule.take()) is not None:
                rounds.append(self._run_round(number))
                sys.stderr.write(f"{rounds[-1]}\n")
                if rounds[-1].left:
                    schedule.fail()
                elif not rounds[-1].is_steered:
                    schedule.repeat()
        except Exception:
            schedule.fail()
            raise
        return rounds

    def _run_round(self, number: int) -> Round:
        chance, is_steered = random.Random(number), True
        self._weir.start()
        steering = threading.Thread(target=self._steer, args=(number,), daemon=True)
        steering.start()
        if number % 3 == 2:
            time.sleep(chance.uniform(1.0, 8.0))  # while it is still setting values: each takes about a second
        else:
            steering.join()
            is_steered = self._is_steered()
            time.sleep(chance.uniform(0.0, read_lease_seconds() / 3))  # between two renewals
        self._weir.vanish()
        killed_at = time.monotonic()
        steering.join()
        seconds, left, last = self._wait_for_restoration(killed_at)
        return Round(number, seconds, left, is_steered, last)

    def _steer(self, number: int) -> None:
        """Set all values with the API, as a user does. It may fail at any point, because Weir is killed meanwhile."""
        weir = self._weir
        with suppress(httpx.TransportError, WorkerSilent):
            for name, app in self._apps.items():
                for left in weir.api.get(f"/plants/{name}/interventions").json()["in_force"]:  # of the last round
                    with suppress(ApiRefusal):  # Weir has ended it meanwhile
                        weir.post(f"/plants/{name}/interventions/undo", kind=left["kind"], subject=left["subject"])
                weir.post(f"/plants/{name}/interventions", kind="pause", subject=QUEUE)
                weir.post(f"/plants/{name}/interventions", kind="rate_limit", subject=TASK, value="1/m")
                tasks = SIZES[name][number % len(SIZES[name])]
                weir.post(f"/plants/{name}/tasks", operator=app.read()["worker"], tasks=tasks)
            for operator in ("parse", "score"):
                weir.post(f"/plants/{KUBERNETES}/tasks", operator=operator, tasks=3 + number % 3)

    def _is_steered(self) -> bool:
        """Return whether Weir has set values at each system. If not, the round measures nothing."""
        try:
            setups = [app.read() for app in self._apps.values()]
        except WorkerSilent:
            return False
        return bool(describe_held(self._k8s)) and all(row["limit"] and not row["queues"] for row in setups)

    def _wait_for_restoration(self, killed_at: float) -> tuple[float, str, str]:
        """Return the seconds until all values were restored, what differs after GIVE_UP_SECONDS, and what was last.

        The systems are read for longer than a lease in any case: a command that was on its way may take effect after
        the first reading.
        """
        seconds: float | None = None
        left, last = "unknown", ""
        while (elapsed := time.monotonic() - killed_at) <= GIVE_UP_SECONDS:
            time.sleep(0.5)
            try:
                differences = {name: app.describe_difference() for name, app in self._apps.items()}
            except WorkerSilent:  # on a busy host
                continue
            differences[KUBERNETES] = describe_held(self._k8s)
            left = "; ".join(f"{name}: {text}" for name, text in differences.items() if text)
            elapsed, last = time.monotonic() - killed_at, left or last
            seconds = None if left else elapsed if seconds is None else seconds
            if seconds is not None and elapsed > read_lease_seconds() + SETTLE_SECONDS:
                return seconds, "", last
        return elapsed, left or "nothing for long enough", last


def read_lease_seconds() -> float:
    return variables.LEASE_SECONDS.get_seconds()


@contextmanager
def _guard(*arguments: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, str(GUARD_FILE), *arguments], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()
