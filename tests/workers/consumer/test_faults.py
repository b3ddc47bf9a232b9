"""Workers as real processes: handlers that hang or are killed, and effects that are exact all the same."""

import sqlite3
from dataclasses import replace
from itertools import count

import pytest
import redis
from celery import current_app

from common.errors import BadInput
from queues import keys
from queues.events.block import BlockIds, cut
from queues.segments.segment import Segment
from tests.servers import Server
from tests.waiting import until
from tests.workers.celery_worker import CeleryWorker
from tests.workers.samples import batch_of, fill
from workers.consumer.worker import send_workers

pytestmark = [pytest.mark.faults, pytest.mark.slow]
SAMPLES = "python:tests.workers.consumer.handler_samples"
WAIT_SECONDS = 60.0


@pytest.fixture
def segment(nodes):
    return Segment(nodes["n1"].client(), "alert")


@pytest.fixture
def order(control, plant_topology):
    """Set the alert queue's handler, and have workers sent to n1 each time it is called."""
    numbers = count()

    def send(times: int = 1, **changes: object) -> None:
        queue = replace(plant_topology.queues["alert"], **changes)
        topology = replace(plant_topology, queues={**plant_topology.queues, "alert": queue})
        control.set(keys.TOPOLOGY, topology.to_json())
        ids = [f"worker-{next(numbers)}" for _ in range(times)]
        now = float(control.time()[0])
        send_workers(control, topology, "alert", "n1", times, ids, now)

    return send


def work_count(control: redis.Redis, name: str) -> int:
    return int(control.hget("weir:work:alert:n1", name) or 0)


def let_claims_grow_old(segment: Segment) -> None:
    """As if a minute had passed since the dead claimed them."""
    pending = segment.node.xpending_range(segment.stream, "workers", "-", "+", 1000)
    for entry in pending:
        holder, name = entry["consumer"], entry["message_id"]
        segment.node.xclaim(segment.stream, "workers", holder, 0, [name], idle=60_000, justid=True)


def settled(segment: Segment) -> bool:
    return segment.measure()["length_blocks"] == 0


def test_a_host_reports_itself_and_handles_what_it_is_sent(control, host, segment, order):
    fill(segment, 6)
    host.start()
    order(handler="noop")
    until(lambda: work_count(control, "finished"), WAIT_SECONDS)
    assert settled(segment)
    assert (work_count(control, "submitted"), work_count(control, "started")) == (1, 1)
    assert (work_count(control, "events"), work_count(control, "effects")) == (48, 48)
    assert control.zcard(keys.SUBMITTED.build("alert", "n1")) == 0
    assert sum(map(int, control.hvals("weir:latency:alert"))) == 48


def test_a_worker_of_a_queue_that_requires_a_capability_runs_on_the_host_that_has_it(
    control, broker, host, segment, order, tmp_path
):
    """The host that has the capability takes only workers that are sent to this host."""
    fill(segment, 6)
    host.machine = "a"
    host.start()
    with pytest.raises(BadInput, match="no worker host of role jobs has gpu"):
        order(handler="noop", requirements=("gpu",))
    (tmp_path / "b").mkdir()
    other = CeleryWorker(control, broker, tmp_path / "b", queues="none", machine="b", capabilities="gpu").start()
    try:
        order(handler="noop", requirements=("gpu",))
        until(lambda: work_count(control, "finished"), WAIT_SECONDS)
        assert settled(segment)
    finally:
        other.close()


def test_a_handler_that_kills_its_worker_ends_in_dead_letters_and_the_host_lives(control, host, segment, order):
    fill(segment, 1, 16)
    host.start()
    order(handler=f"{SAMPLES}.die_on_13", tries=1)
    until(lambda: "SIGKILL" in host.log(), WAIT_SECONDS)
    assert segment.measure()["pending_blocks"] == 1
    for _ in range(3):  # three more workers that died of it
        segment.claim("dies", 1000, 0.0)
    let_claims_grow_old(segment)
    order(handler="noop", tries=1)
    until(lambda: settled(segment), WAIT_SECONDS)
    assert segment.measure()["dead_letters"] == 1
    assert segment.get_counters()["removed_events"] == 16


def test_effects_are_exact_when_a_worker_is_killed_between_effect_and_acknowledgement(control, host, segment, order):
    blocks = fill(segment, 5, 100)
    host.start()
    order(handler=f"{SAMPLES}.keep_then_die_once")
    until(lambda: (host.data / "died").exists(), WAIT_SECONDS)
    assert segment.measure()["length_blocks"] == 5
    let_claims_grow_old(segment)
    order(handler=f"{SAMPLES}.keep_then_die_once")
    until(lambda: settled(segment), WAIT_SECONDS)
    with sqlite3.connect(host.data / "kept.sqlite3") as database:
        kept = {row[0] for row in database.execute("SELECT id FROM kept")}
    database.close()
    assert kept == {name for block in blocks for name in block.get_event_ids().to_pylist()}
    assert segment.get_counters()["removed_events"] == 500


def test_sql_effects_are_exact_while_the_whole_host_is_killed_in_the_middle(control, host, segment, order):
    blocks = fill(segment, 60, 512)
    host.slots = 2
    host.start()
    order(8, handler="sql", events_per_worker=2000)
    until(lambda: segment.get_counters()["removed_events"] > 1000, WAIT_SECONDS)
    host.kill()
    host.start()
    until(lambda: settled(segment) or (order(4, handler="sql"), False)[1], every_seconds=1.0)
    with sqlite3.connect(host.data / "handled.sqlite3") as database:
        kept = [row[0] for row in database.execute("SELECT id FROM handled")]
    database.close()
    assert len(kept) == len(set(kept)) == 60 * 512
    assert set(kept) == {name for block in blocks for name in block.get_event_ids().to_pylist()}
    counters = segment.get_counters()
    assert counters["inserted_events"] == counters["removed_events"] == 60 * 512
    assert counters["dead_events"] == 0


def test_a_queue_whose_handler_is_not_there_says_so(control, host, segment, order):
    fill(segment, 1)
    host.start()
    order(handler="python:tests.workers.consumer.handler_samples.missing")
    until(lambda: work_count(control, "finished"), WAIT_SECONDS)
    assert b"has no missing" in control.hget("weir:work:alert:n1", "trouble")
    assert segment.measure()["length_blocks"] == 1


def test_a_handler_that_can_not_be_interrupted_is_killed_by_the_hard_limit(control, host, segment, order):
    fill(segment, 1, 16)
    host.start()
    before = host.pool_pids()
    order(0, handler=f"{SAMPLES}.sleep_deaf")
    arguments = ("alert", "n1", "deaf")
    current_app.send_task("workers.tasks.consume", arguments, time_limit=8)
    until(lambda: "Hard time limit" in host.log(), WAIT_SECONDS)
    until(lambda: host.pool_pids() and host.pool_pids() != before, WAIT_SECONDS)
    assert segment.measure()["pending_blocks"] == 1
    let_claims_grow_old(segment)
    order(handler="noop")
    until(lambda: settled(segment), WAIT_SECONDS)
    assert segment.get_counters()["dead_events"] == 0


BLOCK = 8


def published(node: Server, queue: str, blocks: int) -> None:
    events = batch_of(BLOCK * blocks, source=[queue] * (BLOCK * blocks))
    Segment(node.client(), queue).publish(cut(events, BlockIds(), BLOCK))


@pytest.mark.slow
def test_workers_that_go_ahead_run_first_then_by_the_priority_of_their_queue(control, host, nodes, plant_topology):
    handler = "python:tests.workers.consumer.handler_samples.note_source"
    given = {"alert": 3, "process": 7}
    queues = {
        name: replace(plant_topology.queue(name), priority=priority, handler=handler, events_per_worker=BLOCK)
        for name, priority in given.items()
    }
    topology = replace(plant_topology, queues={**plant_topology.queues, **queues})
    control.set(keys.TOPOLOGY, topology.to_json())
    for name in given:
        published(nodes["n1"], name, 3)
    now = float(control.time()[0])
    # The slot is free only after all were sent; the one that goes ahead was sent last.
    send_workers(control, topology, "process", "n1", 2, ["p1", "p2"], now)
    send_workers(control, topology, "alert", "n1", 3, ["a1", "a2", "a3"], now)
    send_workers(control, topology, "process", "n1", 1, ["p0"], now, ahead=1)
    host.start()
    order = host.data / "order"
    seen = until(lambda: order.exists() and len(found := order.read_text().split()) == 6 and found, 150)
    assert seen == ["process", "alert", "alert", "alert", "process", "process"]
