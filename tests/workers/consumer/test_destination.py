"""The limits that all workers of a destination share, on a real control server."""

from threading import Barrier, Thread

import pytest
import redis

from controllers.retries.circuit import MAX_TOKENS, OPEN, DestinationCalls
from queues import circuit_hold, keys
from queues.circuit_hold import CircuitHold
from queues.segments.segment import Segment
from queues.topology import QueueSpec
from tests.waiting import until
from tests.workers.consumer.test_consumers import Recorder, tried_once, work
from tests.workers.samples import fill
from workers.consumer.backoff import Backoff
from workers.consumer.destination import (
    NoLimit,
    SharedLimit,
    build_limit,
    get_destination_name,
    load_states,
    read_state,
)

SHOP = "shop.example:8443"


@pytest.fixture
def segment(node):
    return Segment(node, "alert")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def share(control, clock, queue="alert") -> SharedLimit:
    return SharedLimit(control, queue, SHOP, clock)


def break_down(control, clock, failures=20) -> None:
    share(control, clock).record(DestinationCalls(failures=failures, error="shop.example returned HTTP 503"))


@pytest.mark.parametrize(
    ("handler", "options", "destination"),
    [
        ("webhook", {"url": "https://ada:secret@shop.example:8443/orders?token=1"}, SHOP),
        ("sql", {"url": "postgresql://ada@db.example:5432/shop"}, "db.example:5432"),
        ("sql", {"url": "sqlite:///data/handled/orders.sqlite3"}, "orders.sqlite3"),
        ("sql", {"url_environment": "SHOP_DB"}, "database in SHOP_DB"),
        ("sql", {}, "handled.sqlite3"),
        ("parquet", {}, "archive"),
        ("python:shop.orders.send", {}, "python:shop.orders.send"),
        ("python:shop.orders.send", {"destination": "the shop"}, "the shop"),
        ("webhook", {"url": "https://[shop"}, "webhook"),
        ("emulate", {}, ""),
    ],
)
def test_a_destination_has_the_name_of_what_the_handler_calls_and_no_secret(handler, options, destination):
    assert get_destination_name(handler, options) == destination


def test_a_handler_that_calls_nothing_has_no_limit(control, clock):
    assert isinstance(build_limit(control, QueueSpec("alert", "jobs", {"n1": 1000}), clock), NoLimit)


def test_failures_that_one_queue_meets_limit_the_calls_of_another(control, clock):
    break_down(control, clock)
    assert share(control, clock, "orders").admit() == "none"


def test_workers_that_report_at_once_lose_no_report(control, clock):
    barrier = Barrier(8)

    def report() -> None:
        limit = share(control, clock)
        barrier.wait()
        limit.record(DestinationCalls(0, 0, 1, "503"))
        limit.close()

    threads = [Thread(target=report) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert load_states(control, [SHOP])[SHOP].failures == 8.0


def test_calls_are_reported_once_at_the_end_while_the_destination_is_healthy(control, clock):
    limit = share(control, clock)
    limit.admit()
    limit.record(DestinationCalls(3, 3, 0))
    limit.record(DestinationCalls(2, 2, 0))
    assert not load_states(control, [SHOP])
    limit.close()
    limit.close()
    assert load_states(control, [SHOP])[SHOP].calls == 5.0


def test_without_a_control_server_all_calls_are_made(clock):
    away = redis.Redis(port=1)
    limit = SharedLimit(away, "alert", SHOP, clock)
    assert (limit.admit(), limit.take_retry()) == ("all", True)
    limit.record(DestinationCalls(0, 0, 1, "503"))
    limit.close()


def test_a_plan_takes_from_the_budget_that_handlers_share_and_says_what_it_waits_for(control, clock):
    share(control, clock).record(DestinationCalls(firsts=40, successes=40, failures=10, error="HTTP 503"))
    plan = share(control, clock, "")
    assert (plan.take_retries(100), plan.take_retries(100)) == (MAX_TOKENS, 0)
    assert plan.explain_wait() == f"Waiting: the retry budget of {SHOP} is used up."
    worker = share(control, clock)
    worker.admit()
    assert not worker.take_retry(), "the plan has used it up"


def test_a_plan_sends_nothing_while_the_circuit_is_open_or_held_open_or_unknown(control, clock):
    break_down(control, clock)
    plan = share(control, clock)
    assert plan.take_retries(100) == 0
    assert plan.explain_wait() == (
        f"Waiting: the circuit of {SHOP} is open. Last failure: shop.example returned HTTP 503"
    )
    circuit_hold.hold(control, "alert", CircuitHold("closed", "a test", "ada"), 60)
    assert (plan.take_retries(100), plan.take_retries(100)) == (MAX_TOKENS, 0), (
        "the budget applies although a person holds the circuit closed"
    )
    circuit_hold.hold(control, "alert", CircuitHold("open", "a test", "ada"), 60)
    assert plan.take_retries(100) == 0
    assert plan.explain_wait() == f"Waiting: the circuit of {SHOP} is held open."
    away = SharedLimit(redis.Redis(port=1), "alert", SHOP, clock)
    assert (away.take_retries(100), away.explain_wait()) == (0, "Waiting: the control server does not respond.")


def test_a_state_that_another_version_wrote_counts_as_healthy():
    assert read_state(b'{"at": "yesterday"}').circuit == "closed"


@pytest.mark.parametrize(("hold", "admission"), [(circuit_hold.OPEN, "none"), (circuit_hold.CLOSED, "all")])
def test_a_person_holds_the_circuit_of_one_queue_open_or_closed(control, clock, hold, admission):
    if hold == circuit_hold.CLOSED:
        break_down(control, clock)
    circuit_hold.hold(control, "alert", CircuitHold(hold, "tests", "ada"), 60.0)
    limit = share(control, clock)
    assert limit.admit() == admission
    assert limit.is_open == (hold == circuit_hold.OPEN)
    circuit_hold.hold(control, "alert", CircuitHold(hold, "tests", "ada"), 0.0)
    assert not control.exists(keys.CIRCUIT_HOLD.build("alert"))


def test_an_open_circuit_leaves_events_in_the_queue_and_counts_no_try(segment, control, clock):
    fill(segment, 5)
    break_down(control, clock)
    handler = Recorder()
    report = work(segment, handler, limit=share(control, clock))
    assert (report.blocks, report.failed, handler.calls) == (0, 0, [])
    assert segment.measure()["length_blocks"] == 5


def test_a_probe_is_a_single_block(segment, control, clock):
    fill(segment, 5)
    break_down(control, clock)
    clock.now += 1.0
    assert work(segment, Recorder(), limit=share(control, clock)).blocks == 1


def test_the_queue_is_processed_again_after_probes_have_succeeded(segment, control, clock):
    fill(segment, 20)
    break_down(control, clock)
    blocks = 0
    for _ in range(8):
        clock.now += 1.0
        blocks += work(segment, Recorder(), limit=share(control, clock)).blocks
    assert blocks == 20


def test_a_worker_stops_when_its_calls_open_the_circuit_and_gives_back_the_rest_untried(segment, control, clock):
    fill(segment, 40)
    handler = Recorder(lambda value: True, transient=True)
    handler.works_block_by_block = True
    report = work(segment, handler, limit=share(control, clock))
    assert (report.failed, sum(handler.calls)) == (16, 16)
    assert load_states(control, [SHOP])[SHOP].circuit == OPEN
    assert segment.measure()["length_blocks"] == 40
    left = segment.claim("w2", 100_000, 15.0)
    assert sorted(block.tries for block in left) == [1] * 24 + [2] * 16


def test_a_retry_without_a_token_waits_and_counts_no_try(segment, control, clock):
    fill(segment, 1)
    tried_once(segment)
    limit = share(control, clock)
    limit.record(DestinationCalls(0, 35, 15, "503"))
    while limit.take_retry():
        pass
    handler = Recorder()
    report = work(segment, handler, limit=share(control, clock), backoff=Backoff(base_seconds=0.01))
    assert (report.failed, report.dead, handler.calls) == (0, 0, [])
    [block] = until(lambda: segment.claim("w2", 100_000, 15.0))
    assert block.tries == 2


def test_a_retry_is_made_when_the_budget_has_a_token_again(segment, control, clock):
    fill(segment, 1)
    tried_once(segment)
    limit = share(control, clock)
    limit.record(DestinationCalls(0, 35, 15, "503"))
    while limit.take_retry():
        pass
    clock.now += 5.0
    assert work(segment, Recorder(), limit=share(control, clock)).blocks == 1


def test_events_that_the_handler_rejects_open_no_circuit(segment, control, clock):
    fill(segment, 30)
    handler = Recorder(lambda value: True, poison=True)
    handler.works_block_by_block = True
    work(segment, handler, limit=share(control, clock))
    assert load_states(control, [SHOP]) == {}
