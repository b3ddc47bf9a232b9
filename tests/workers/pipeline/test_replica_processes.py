"""Two replicas in processes of their own, each on a core of its own: one is hogged, killed, and started again."""

import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from statistics import fmean

import msgspec
import numpy as np
import psutil
import pytest

from common.stored_document import convert_to_plain, decode_document, get_decoder
from controllers.flow.balance import LAW, BalanceObservation, BalanceParameters
from controllers.simulation import balance as scenario
from queues import keys
from tests.waiting import until
from tests.workers.pipeline.pipeline_process import START_SECONDS, Running, published, removed
from workers.control.kinds.balance import INTERVAL_SECONDS, KIND
from workers.documents.pipeline import PipelineReport, PipelineStatus
from workers.documents.snapshot import Snapshot
from workers.pipeline.declaration.controls import steer
from workers.pipeline.dispatch.result_queue import ResultQueue
from workers.pipeline.tiers.finished_batch import ReplicaBatch
from workers.twin import balance as twin

REPLICAS = ("iap1", "iap2")
CALM_SECONDS, HOG_SECONDS, ADAPTING_SECONDS = 30, 90, 60
LOAD, HOG_CYCLE_SECONDS = 0.6, 0.1
# Rules that cost more than the fixed part of a batch: the time of a batch depends on its events.
COSTLY = "\n".join(
    f"""  - name: costly-{number}
    discard: "translate(lpad(id, {100 + number}, 'ab'), 'ab', 'ba') = 'x'\""""
    for number in range(20)
)
DECLARATION = f"""
name: exact
queues: [telemetry]
sink: alert
replicas: 2
lateness_seconds: 1
rules:
{COSTLY}
patterns:
  - name: ab
    pattern: SEQ(A; B)
    key: source
    within_seconds: 1
"""


class SeparateProcesses(Running):
    """The main process, and a process for each replica that is pinned to its own core."""

    def __init__(self, *given, **environment):
        super().__init__(*given, DECLARATION, WEIR_PIPELINE_REPLICA_PROCESSES="2", **environment)
        self.replicas: dict[str, subprocess.Popen] = {}

    def start_replica(self, name: str, core: int) -> None:
        self.replicas[name] = self.start_process(f"log-{name}", "--replica", name)
        psutil.Process(self.replicas[name].pid).cpu_affinity([core])  # before it starts Spark, which inherits this

    def kill_replica(self, name: str) -> None:
        for process in [*psutil.Process(self.replicas[name].pid).children(recursive=True), self.replicas[name]]:
            with suppress(psutil.Error):
                process.kill()
        self.replicas[name].wait()

    def end(self) -> None:
        for name in self.replicas:
            if self.replicas[name].poll() is None:
                self.kill_replica(name)
        super().end()

    def list_batches(self) -> list[tuple[float, str, ReplicaBatch]]:
        """Return when each batch was reported (s, clock of the control server), its replica, and the batch."""
        entries = self._control.xrange(keys.PIPELINE_BATCHES.build("exact"))
        return [
            (int(at.partition(b"-")[0]) / 1_000, row[b"replica"].decode(), get_decoder(ReplicaBatch).decode(row[b"d"]))
            for at, row in entries
            if row[b"replica"].decode() in REPLICAS  # the combiner reports its batches, too
        ]


@pytest.fixture
def separate(tmp_path, control_server, control, plant_topology):
    application = SeparateProcesses(tmp_path, control_server.url, control)
    yield application
    application.end()


@contextmanager
def hog_process(pid: int):
    """Let a process and its children run for half of the time: everything in them takes twice as long."""
    ended = threading.Event()

    def send(signum: int) -> None:
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with suppress(psutil.Error):
                process.send_signal(signum)

    def alternate() -> None:
        while not ended.is_set():
            send(signal.SIGSTOP)
            ended.wait(HOG_CYCLE_SECONDS / 2)
            send(signal.SIGCONT)
            ended.wait(HOG_CYCLE_SECONDS / 2)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        send(signal.SIGCONT)


class BalanceLoop:
    """The law and the sensor of the shipped loop, on the status that the main process writes."""

    def __init__(self, control):
        # The rules are expensive, so a few events are a load (docs/understand/how/flow-and-balance.md).
        parameters = {**KIND.defaults.parameters, "least_events_per_second": 100.0}
        self._control, self.parameters = control, BalanceParameters(**parameters)
        self.state, self.shares = LAW.start(self.parameters), []

    def tick_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            threading.Event().wait(INTERVAL_SECONDS)
            report = convert_to_plain(decode_document(PipelineReport, self._control.get(keys.PIPELINE), "status"))
            fields = {name: report[name] for name in msgspec.structs.asdict(PipelineStatus()) if name in report}
            status = msgspec.convert({**fields, "age_seconds": 0.0}, PipelineStatus)
            snapshot, target = Snapshot(at=time.time(), pipeline=status), {"application": "exact"}
            sensed = KIND.sensor(target, snapshot, None, time.time()).observation
            observation = msgspec.convert(sensed, BalanceObservation)
            self.state, decision = LAW.decide(self.parameters, self.state, observation)
            if decision.action:
                steer(self._control, "exact", {"shares": decision.action["shares"]})
            self.shares.append(observation.shares["iap1"])


def compute_mean_delay(batches, since: float, until_: float) -> float:
    """Return the mean over 5 s intervals of the slowest replica's response time, for which each event waits."""
    slowest = []
    for start in np.arange(since, until_, 5.0):
        times = [
            [batch.response_seconds for at, name, batch in batches if name == replica and start <= at < start + 5.0]
            for replica in REPLICAS
        ]
        slowest.append(max((fmean(values) for values in times if values), default=0.0))
    return fmean(value for value in slowest if value)


def compute_twin_ratio() -> float:
    """Return the mean delay on the twin during the same hog, divided by the mean delay before it.

    Here, the hog doubles all of a batch's time. The scenario doesn't double the fixed part, so that part is added.
    """
    settings = scenario.SCENARIO.read_settings({"hog": 1.0})
    events = scenario.generate_arrivals(settings, 3, None)
    responses, _ = twin.simulate(events, scenario.generate_capacities(settings, 3))
    began = scenario.HOG_FROM
    responses[began:, 0] += scenario.BATCH_SECONDS / 2 + scenario.OVERHEAD_SECONDS
    delays = responses.max(axis=1)
    return float(delays[began : began + HOG_SECONDS].mean() / delays[began - CALM_SECONDS : began].mean())


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="each replica needs a core of its own")
def test_a_hogged_replica_gets_a_smaller_share_and_a_killed_replica_continues(separate, control_server, control, nodes):
    separate.start()
    for core, name in enumerate(REPLICAS):
        separate.start_replica(name, core)
    rate, loop, began = [300.0], BalanceLoop(control), float(int(time.time()))
    sent = [0.0]

    def next_events(seconds: float, count: int) -> list[dict]:
        due, sent[0] = int(rate[0] * (seconds - sent[0])), seconds
        return [
            {"id": f"{count + n}", "time": began + seconds, "type": "AB"[n % 2], "source": f"s{n % 20}"}
            for n in range(due)
        ]

    with published(control_server.url, next_events) as count:
        until(lambda: {name for _, name, _ in separate.list_batches()} == set(REPLICAS), START_SECONDS)
        for _ in range(ADAPTING_SECONDS // 10):  # to the load of the scenario
            loop.tick_for(10.0)
            since = control.time()[0] - 10
            busy = sum(batch.seconds for at, _, batch in separate.list_batches() if at >= since) / 10 / len(REPLICAS)
            rate[0] *= min(1.5, max(0.7, LOAD / max(busy, 0.05)))
        calm_at = control.time()[0]
        loop.tick_for(CALM_SECONDS)
        hog_at, equal = control.time()[0], loop.shares[-1]
        with hog_process(separate.replicas["iap1"].pid):
            loop.tick_for(HOG_SECONDS)
        end_at, shifted = control.time()[0], fmean(loop.shares[-6:])
        separate.kill_replica("iap1")
        loop.tick_for(10.0)
        separate.start_replica("iap1", 0)
    batches = separate.list_batches()
    ratio = compute_mean_delay(batches, hog_at, end_at) / compute_mean_delay(batches, calm_at, hog_at)
    # How much is useful depends on the fixed part of a batch, which shares don't change.
    assert shifted < equal - 0.02
    assert ratio <= 1.3 * compute_twin_ratio()
    # Nothing that was assigned to the killed process is lost or counted twice.
    until(lambda: not ResultQueue(control, "exact").measure_room().in_flight_events, START_SECONDS)
    until(lambda: removed(nodes) == count[0], START_SECONDS)
    assert separate.status()["applications"]["exact"]["restarts"]["count"] == 0
