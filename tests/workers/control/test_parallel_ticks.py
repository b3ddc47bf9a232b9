"""Loops that tick in several processes: which may, that each ticks once, and what happens if a process fails."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.queues.node_servers import node_servers
from workers.control import parallel_ticks, tick_process
from workers.control.parallel_ticks import MIN_LOOPS, TickProcesses, divide
from workers.control.tick import DueLoop
from workers.documents.hosts import HostStatus
from workers.documents.nodes import NodeStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot

ROOT = Path(__file__).resolve().parents[3]
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
NODES = ("n1", "n2", "n3", "n4")


def build_due(queues=MIN_LOOPS, nodes=NODES, law="worker_rate"):
    places = [(f"queue{number}", node) for number in range(queues) for node in nodes]
    return [DueLoop(pk, 0, None, law, queue, node) for pk, (queue, node) in enumerate(places)]


def build_snapshot(*capabilities, requirements=()):
    """A plant whose worker hosts have these capabilities, and whose queue1 requires some."""
    hosts = {
        f"jobs@{number}": HostStatus(role="jobs", capabilities=list(own)) for number, own in enumerate(capabilities)
    }
    queues = {"queue0": QueueStatus(kind="jobs"), "queue1": QueueStatus(kind="jobs", requirements=list(requirements))}
    return Snapshot(nodes={name: NodeStatus() for name in NODES}, queues=queues, hosts=hosts)


def nodes_of(share):
    return {loop.node for loop in share}


def test_each_loop_is_in_one_share_and_the_shares_are_equal():
    due = build_due()
    first, shares = divide(due, build_snapshot(), 3)
    assert first == [] and sorted(loop for share in shares for loop in share) == due
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(("loops", "processes"), [(2 * MIN_LOOPS - 1, 4), (5_000, 1), (0, 4)])
def test_few_loops_or_one_process_are_not_divided(loops, processes):
    due = build_due(loops, ("n1",))
    assert divide(due, build_snapshot(), processes) == (due, [])


def test_loops_of_other_kinds_and_of_whole_queues_tick_first_and_in_their_order():
    ladder, whole, gone = DueLoop(9_001, 0, None, "ladder", "queue0"), DueLoop(9_002, 0, None, "worker_rate"), "gone"
    unknown = DueLoop(9_003, 0, None, gone, "queue0", "n1")
    due = [whole, *build_due(), ladder, unknown]
    first, shares = divide(due, build_snapshot(), 2)
    assert first == [whole, ladder, unknown] and sum(map(len, shares)) == len(due) - 3


def test_nodes_that_share_a_near_host_stay_together():
    first, shares = divide(build_due(), build_snapshot(("n1", "n2"), ("n3", "ssd"), ("n2", "n4")), 2)
    assert first == [] and sorted(map(nodes_of, shares), key=len) == [{"n3"}, {"n1", "n2", "n4"}]


def test_a_queue_that_requires_capabilities_ticks_here_with_the_nodes_that_have_a_near_host():
    due = build_due()
    first, shares = divide(due, build_snapshot(("n1",), ("ssd",), requirements=("ssd",)), 2)
    assert {(loop.queue == "queue1", loop.node == "n1") for loop in first} == {
        (True, True),
        (True, False),
        (False, True),
    }
    assert all(loop.queue != "queue1" and loop.node != "n1" for share in shares for loop in share)
    assert len(first) + sum(map(len, shares)) == len(due)


class FakeProcess:
    """Another process: it ticks what it is sent, or fails as `trouble` says."""

    made, trouble = [], ""

    def __init__(self, arguments):
        if self.trouble == "start":
            raise OSError("no memory")
        self.shares, self.is_ended = [], False
        self.made.append(self)

    def send(self, share):
        if self.trouble == "idle" and len(self.made) == 1 and self.shares:
            raise BrokenPipeError
        self.shares.append(share)

    def wait(self):
        return self.trouble != "ended"

    def end(self):
        self.is_ended = True


@pytest.fixture
def others(monkeypatch):
    monkeypatch.setattr(parallel_ticks, "TickProcess", FakeProcess)
    monkeypatch.setattr(FakeProcess, "made", [])
    return FakeProcess


def tick(processes, due, here=None, judged=None):
    """Return the loops that ticked here. judged: gets the parts of the earlier actions that were judged here."""
    ticked, parts = [], [] if judged is None else judged

    def tick_here(loops):
        ticked.extend(loops)
        return []

    def judge(part, count):
        parts.append((part, count))

    processes.tick(due, build_snapshot(), NOON, lambda: 0.25, judge, here or tick_here)
    return ticked


def test_the_shares_tick_there_and_the_rest_here(others):
    processes, due, judged = TickProcesses(3), build_due(), []
    ticked = tick(processes, due, judged=judged)
    sent = [share for process in others.made for share in process.shares]
    assert sorted([*ticked, *(loop for share in sent for loop in share.due)]) == due and len(sent) == 2
    assert {(share.now, share.elapsed_seconds) for share in sent} == {(NOON, 0.25)}
    assert sorted([*judged, *((share.part, share.parts) for share in sent)]) == [(0, 3), (1, 3), (2, 3)]
    assert Snapshot.from_json(sent[0].snapshot) == build_snapshot()
    tick(processes, due)
    assert len(others.made) == 2, "they serve the next tick too"
    processes.end()
    assert all(process.is_ended for process in others.made)


def test_where_no_process_can_start_all_tick_here(others, monkeypatch, caplog):
    monkeypatch.setattr(others, "trouble", "start")
    due, judged = build_due(), []
    assert sorted(tick(TickProcesses(2), due, judged=judged)) == due
    assert judged == [(0, 2), (1, 2)] and "ticks these loops itself" in caplog.text


def test_few_loops_and_all_earlier_actions_are_dealt_with_here(others):
    due, judged = build_due(1), []
    assert tick(TickProcesses(2), due, judged=judged) == due and judged == [(0, 1)] and not others.made


def test_a_process_that_ends_leaves_its_loops_due_and_is_replaced(others, monkeypatch):
    processes, due = TickProcesses(2), build_due()
    monkeypatch.setattr(others, "trouble", "ended")
    assert len(tick(processes, due)) == len(due) // 2 and others.made[0].is_ended
    monkeypatch.setattr(others, "trouble", "")
    tick(processes, due)
    assert len(others.made) == 2 and others.made[1].shares


def test_a_process_that_ended_while_it_was_idle_is_replaced_at_once(others, monkeypatch):
    processes, due = TickProcesses(2), build_due()
    tick(processes, due)
    monkeypatch.setattr(others, "trouble", "idle")
    assert len(tick(processes, due)) == len(due) // 2
    assert others.made[0].is_ended and others.made[1].shares


def test_a_second_tick_at_the_same_time_uses_no_other_process(others):
    processes, due, inner = TickProcesses(2), build_due(), []

    def here(loops):
        if not inner:
            inner.append(tick(processes, due))
        return []

    tick(processes, due, here)
    assert inner == [due] and sum(len(process.shares) for process in others.made) == 1


class FakeConnection:
    """What a process receives, until the control worker ends or has nothing more to do, and what it answers."""

    def __init__(self, *received, ends=True):
        self.received, self.ends, self.answers = list(received), ends, []

    def poll(self, seconds):
        return bool(self.received) or self.ends

    def recv(self):
        if not self.received:
            raise EOFError
        return self.received.pop(0)

    def send(self, answer):
        self.answers.append(answer)


@pytest.mark.parametrize("ends", [True, False])
def test_a_process_answers_each_share_and_ends_with_the_control_worker_or_when_idle(ends, caplog):
    def tick_unless_bad(share):
        if share == "bad":
            raise RuntimeError("away")

    connection = FakeConnection("good", "bad", "good", ends=ends)
    tick_process.serve(connection, tick_unless_bad)
    assert connection.answers == [True, False, True] and "away" in caplog.text


TICKED = """
import json
from datetime import timedelta
from django.utils import timezone
from bench.laws import ticking_loops as bench
from console.connections.control_server import control
from queues import keys
from queues.projection import project
from workers.control import parallel_ticks
from workers.control.engine import tick_due
from workers.control.loops import ensure_loops
from workers.control.parts.kind import PlantInventory
from workers.models import LedgerEntry, Loop
from workers.plants.memory import MemoryPlant
parallel_ticks.MIN_LOOPS = 4
containers = bench._seed(4, 5)
ensure_loops(PlantInventory(project(control()), control()), ("worker_rate",))
clock = timezone.now()
def tick(processes):
    plant = MemoryPlant(lambda: clock.timestamp(), containers)
    for number, (queue, node) in enumerate(containers):
        plant.put(queue, node, 700 * (1 + number % 3))
    control().set(keys.SNAPSHOT, plant.observe().to_json())
    here = tick_due(plant, clock, control(), processes=processes)
    names = ("loop__name", "reason", "action", "applied", "verdict", "at", "terms", "state_before", "observation")
    rows = sorted(map(repr, LedgerEntry.objects.values_list(*names)))
    states = sorted(map(repr, Loop.objects.values_list("name", "state", "ticked_at", "decided_at", "at_rest")))
    LedgerEntry.objects.all().delete()
    Loop.objects.update(state=None, ticked_at=None, decided_at=None)
    return len(here), rows, states
processes = parallel_ticks.TickProcesses(3, [bench.OPENER])
_, *alone = tick(None)
here, *apart = tick(processes)
again, *_ = tick(processes)
processes.end()
print(json.dumps({"same": alone == apart, "entries": len(apart[0]), "here": here, "again": again}))
"""


@pytest.mark.slow
def test_real_processes_decide_and_record_what_one_does(tmp_path):
    with node_servers(("control",)) as servers:
        environment = {
            **os.environ,
            "WEIR_DATA": str(tmp_path),
            "DATABASE_URL": f"sqlite:///{tmp_path}/weir.sqlite3",
            "REDIS_URL": servers["control"],
        }
        for arguments in (("migrate", "-v", "0"), ("shell", "-v", "0", "-c", TICKED)):
            command = [sys.executable, "manage.py", *arguments]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    ticked = json.loads(done.stdout)
    assert ticked["same"] and ticked["entries"] == 20 and {ticked["here"], ticked["again"]} <= {6, 7}
