"""Managers are killed at random instants while events flow: replaced in time, and never two at once."""

import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from itertools import pairwise

import psutil
import pytest
import redis

from bench.plant.running_plant import ROOT, RunningPlant
from queues import keys
from queues.publishing.client import Client
from queues.topology import Topology
from workers.control.engine import compute_min_seconds
from workers.control.kinds.worker_rate import INTERVAL_SECONDS
from workers.control.tick import LEASE_SECONDS
from workers.coordination.leases import Lease

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(1200)]
QUEUE, EVENTS_PER_SECOND, FLUSHES_PER_SECOND = "alert", 1_000, 5
# From the kill until events are handled as before: on a fast machine, and in starts of a control worker.
BACK_SECONDS, BACK_STARTS = 10.0, 3.0
USUAL_LAG_SECONDS = 5.0


class Flow:
    """Events published at an even pace, and what is known of them by the nodes' own counters."""

    def __init__(self, plant: RunningPlant) -> None:
        self.plant = plant
        topology = Topology.from_json(plant.control.get(keys.TOPOLOGY))
        self.nodes = {name: redis.Redis.from_url(node.url) for name, node in topology.nodes.items()}
        self.published: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self.removed_before, self.work_before = self.removed(), self.work()

    def __enter__(self) -> "Flow":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        self._thread.join()
        for client in self.nodes.values():
            client.close()

    def _publish(self) -> None:
        each, total = EVENTS_PER_SECOND // FLUSHES_PER_SECOND, 0
        with Client(self.plant.control_url(), producer="steady") as client:
            while not self._stop.wait(1 / FLUSHES_PER_SECOND):
                client.publish(QUEUE, [{"type": "steady", "key": str(total + n)} for n in range(each)])
                total += each
                self.published.append((time.monotonic(), total))

    def end(self) -> int:
        """No more events; answers how many there were."""
        self._stop.set()
        self._thread.join()
        return self.published[-1][1]

    def count(self, name: str) -> int:
        return sum(int(node.hget(f"weir:{QUEUE}:counters", name) or 0) for node in self.nodes.values())

    def removed(self) -> int:
        return self.count("removed_events")

    def handled(self) -> int:
        """Events handled since the flow began."""
        return self.removed() - self.removed_before

    def work(self) -> dict[str, int]:
        """The counts of the queue's workers, over all containers."""
        rows = [self.plant.control.hgetall(keys.WORK.build(QUEUE, node)) for node in self.nodes]
        names = ("started", "effects", "duplicates")
        return {name: sum(int(row.get(name.encode(), 0)) for row in rows) for name in names}

    def sent_until(self, moment: float) -> int:
        """Events published up to a moment."""
        return max((total for at, total in self.published if at <= moment), default=0)

    def seconds_until_back(self, since: float) -> float:
        """From `since` until what was published after it is handled, no later than is usual."""
        needed = self.sent_until(since) + EVENTS_PER_SECOND
        while (now := time.monotonic()) < since + 60:
            handled = self.handled()
            if handled >= needed and handled >= self.sent_until(now - USUAL_LAG_SECONDS):
                return now - since
            time.sleep(0.05)
        raise AssertionError(f"{self.handled():,} handled of {self.published[-1][1]:,} published")


def kill_control(plant: RunningPlant) -> None:
    plant.process_matching("console.celery", "--queues control").send_signal(signal.SIGKILL)


def kill_control_with_its_leases(plant: RunningPlant) -> None:
    """As a manager that dies in the middle of its ticks: nobody gives its leases back."""
    with closing(sqlite3.connect(plant.data / "weir.sqlite3")) as database:
        loops = [row[0] for row in database.execute("SELECT id FROM workers_loop WHERE law = 'worker_rate'")]
    kill_control(plant)
    for loop in loops:
        Lease(plant.control, f"loop:{loop}", LEASE_SECONDS).acquire()


KILLS: tuple[Callable[[RunningPlant], None], ...] = (kill_control_with_its_leases, kill_control)


def ledger_of(plant: RunningPlant, since: int) -> dict[int, list[tuple[int, float]]]:
    """{loop: [(fence, time in seconds)]} of the managers' entries after one, as they were written."""
    found: dict[int, list[tuple[int, float]]] = {}
    with closing(sqlite3.connect(plant.data / "weir.sqlite3")) as database:
        rows = database.execute(
            "SELECT entry.loop_id, entry.fence, entry.at FROM workers_ledgerentry entry "
            "JOIN workers_loop loop ON loop.id = entry.loop_id "
            "WHERE loop.law = 'worker_rate' AND entry.id > ? ORDER BY entry.id",
            (since,),
        )
        for loop, fence, at in rows:
            found.setdefault(loop, []).append((fence, datetime.fromisoformat(at).timestamp()))
    return found


def newest_entry(plant: RunningPlant) -> int:
    with closing(sqlite3.connect(plant.data / "weir.sqlite3")) as database:
        return int(database.execute("SELECT coalesce(max(id), 0) FROM workers_ledgerentry").fetchone()[0])


def steady_rows(plant: RunningPlant) -> int:
    """Effects of the flow's events, over all flows of this plant."""
    path = plant.data / "handled.sqlite3"
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path, timeout=20)) as database:
        return int(database.execute("SELECT count(*) FROM handled WHERE type = 'steady'").fetchone()[0])


def survive(
    plant: RunningPlant, kills: list[Callable[[RunningPlant], None]], chance: random.Random, start_seconds: float
) -> None:
    """Each kill at a random instant between two ticks; then every event once, and one manager at a time."""
    limit = max(BACK_SECONDS, BACK_STARTS * start_seconds)
    first, rows_before = newest_entry(plant), steady_rows(plant)
    with Flow(plant) as flow:
        flow.seconds_until_back(time.monotonic())
        for kill in kills:
            time.sleep(chance.uniform(0, INTERVAL_SECONDS))
            killed = time.monotonic()
            kill(plant)
            back = flow.seconds_until_back(killed)
            said = f"{kill.__name__}: {back:.1f} s until events were handled as before"
            assert back <= limit, f"{said}; a start takes {start_seconds:.1f} s"
        total = flow.end()
        deadline = time.monotonic() + 60
        while steady_rows(plant) < rows_before + total and time.monotonic() < deadline:
            time.sleep(0.1)
        # By what the handler wrote: the queue has other events, too, those of the pipeline's outages.
        assert steady_rows(plant) == rows_before + total
        after = {name: count - flow.work_before[name] for name, count in flow.work().items()}
    assert after["duplicates"] == 0
    assert_one_manager_at_a_time(plant, first)


def assert_one_manager_at_a_time(plant: RunningPlant, since: int) -> None:
    """By the ledger: the leases' numbers only rise, and no two decisions stand in one interval."""
    ledgers = ledger_of(plant, since)
    assert ledgers
    for entries in ledgers.values():
        for (fence, at), (next_fence, next_at) in pairwise(entries):
            assert next_fence > fence
            assert next_at - at >= compute_min_seconds(INTERVAL_SECONDS) - 0.01


def control_worker(plant: RunningPlant, queue: str) -> subprocess.Popen[str]:
    """Another control worker beside the plant's own, which writes when it is ready."""
    command = [str(ROOT / ".venv/bin/celery"), "--app", "console.celery", "worker", "--queues", queue]
    options = ["--hostname", "control2@%h", "--pool", "threads", "--concurrency", "2", "--loglevel", "INFO"]
    return subprocess.Popen(
        [*command, *options],
        cwd=ROOT,
        env={**plant.environment(), "REDIS_URL": plant.control_url()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def start_seconds(plant):
    """How long a control worker takes to start on this machine, beside this plant: the best of three."""
    return min(start_of_one(plant) for _ in range(3))


def start_of_one(plant: RunningPlant) -> float:
    began = time.monotonic()
    with control_worker(plant, "nothing-comes-here") as process:
        assert process.stderr is not None
        ready = any(line.rstrip().endswith("ready.") for line in process.stderr)
        process.kill()
    assert ready
    return time.monotonic() - began


@pytest.fixture
def second_manager(plant):
    """Two that would both decide, if they could."""
    with control_worker(plant, "control") as process:
        reader = threading.Thread(target=process.communicate, daemon=True)
        reader.start()
        yield psutil.Process(process.pid)
        process.kill()
        reader.join()


@pytest.mark.parametrize("seed", range(2))
def test_whoever_is_killed_at_whatever_instant_is_replaced_in_time(plant, start_seconds, seed):
    chance = random.Random(seed)
    survive(plant, [chance.choice(KILLS) for _ in range(3)], chance, start_seconds)


def test_two_managers_that_are_paused_and_killed_in_turn_never_decide_at_once(plant, start_seconds, second_manager):
    def pause_the_second(plant):
        second_manager.suspend()
        pauses.append(threading.Timer(1.5 * LEASE_SECONDS, second_manager.resume))
        pauses[-1].start()

    pauses: list[threading.Timer] = []
    survive(plant, [pause_the_second, kill_control, pause_the_second], random.Random(11), start_seconds)
    for each in pauses:  # the fixture ends the second manager
        each.join()
