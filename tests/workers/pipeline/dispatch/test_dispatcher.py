"""The dispatcher on real nodes: what is admitted, what waits, who works it; nothing is lost over it."""

import json
import time
from dataclasses import replace

import pytest
import redis

from queues import keys, pausing
from queues.events.block import BlockIds, cut, from_events
from queues.publishing.client import Client
from queues.segments.segment import Segment
from tests.workers.pipeline.times import Times
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.admission import Reserve
from workers.pipeline.dispatch.arrivals import ArrivalWatch
from workers.pipeline.dispatch.assignment import DispatcherOvertaken, Dispatches
from workers.pipeline.dispatch.dispatcher import BUSY_SECONDS, CALM_PAUSE_SECONDS, Dispatcher, compute_gathering_seconds
from workers.pipeline.dispatch.result_queue import AttemptOvertaken, Blob, Result, ResultQueue, Room
from workers.pipeline.events.containers import Faults, Nodes, Range, read_range

REPLICAS = ("iap1", "iap2")
CALM = Controls(lateness_seconds=1.0)


@pytest.fixture
def times():
    return Times()


@pytest.fixture
def dispatcher(control_server, control, plant_topology, times):
    made = Dispatcher(
        control_server.url, "app", ("telemetry",), REPLICAS, Controls(lateness_seconds=1.0), monotonic=times
    )
    yield made
    made.close()


@pytest.fixture
def publish(control_server):
    with Client(control_server.url, "test") as client:
        yield lambda events: client.publish("telemetry", [{"type": "t", "source": "s"}] * events)


def steer(control, **controls) -> None:
    control.set(keys.PIPELINE_CONTROLS.build("app"), json.dumps(controls))


def given(control) -> dict[str, int]:
    dispatches = Dispatches(control, "app")
    return {name: sum(each.events for each in dispatches.list_after(name, 0)) for name in REPLICAS}


def work(control, size_bytes: int = 0) -> None:
    """What the replicas do: each publishes the results of all it was given."""
    dispatches, results = Dispatches(control, "app"), ResultQueue(control, "app")
    for name in REPLICAS:
        published = results.measure_room().published.get(name, 0)
        if assigned := dispatches.list_after(name, published):
            blobs = (Blob("b", "source", -1, 0, 0, 1, size_bytes),)
            result = Result(name, assigned[-1].tick, assigned[0].watermark_us, blobs)
            attempt = results.begin(name, published, result.tick)
            results.publish(result, attempt, sum(each.events for each in assigned))


def test_a_topology_that_can_not_be_read_ends_nothing(dispatcher, publish, control):
    """A newer version may have written it: what was known is worked by."""
    publish(3_000)
    assert dispatcher.step() == 3_000
    publish(40_000)
    control.set(keys.TOPOLOGY, b'{"newer": 1}')
    assert dispatcher.step() == 40_000


def test_everything_is_dispatched_once_by_shares(dispatcher, publish, control):
    steer(control, shares={"iap1": 0.25, "iap2": 0.75})
    publish(40_000)
    assert dispatcher.step() == 40_000
    assert dispatcher.step() == 0
    found = given(control)
    assert sum(found.values()) == 40_000
    assert abs(found["iap1"] - 10_000) <= 512


def test_what_is_not_admitted_waits_in_the_queue(dispatcher, publish, control, times):
    steer(control, admit_events_per_second=10_000)
    dispatcher.step()
    publish(30_000)
    admitted = []
    for _ in range(6):
        times.now += 0.5
        admitted.append(dispatcher.step())
        work(control)
    assert sum(admitted) == 30_000
    assert max(admitted) <= 10_000 + 512
    assert sum(admitted[:4]) <= 20_000 + 512


def test_a_limit_that_has_ended_holds_nobody_back(dispatcher, publish, control):
    steer(control, admit_events_per_second=0, admit_until_seconds=1.0)
    publish(5_000)
    assert dispatcher.step() == 5_000


def test_no_more_is_in_flight_than_the_result_queue_has_room_for(dispatcher, publish, control):
    steer(control, result_bytes=2**20)
    publish(20_000)
    first = dispatcher.step()
    assert 0 < first <= 2**20 / 120 + 512
    assert dispatcher.step() == 0, "what is in flight is counted"
    work(control, size_bytes=2**20)
    assert dispatcher.step() == 0, "the queue is full"
    assert dispatcher.stall_reason.startswith("the result queue has no room: 2 of 1 MiB used")


def test_what_is_to_stay_free_of_the_result_queue_does_whatever_the_rate_is(dispatcher, publish, control, times):
    steer(control, result_bytes=2**20, reserve_bytes=2**19, admit_events_per_second=1e6)
    publish(20_000)
    times.now += 1.0
    first = dispatcher.step()
    assert 2**18 / 120 < first <= 2**19 / 120 + 512
    work(control, size_bytes=2**19)
    times.now += 0.1
    assert dispatcher.step() == 0, "just so much is in use as may be"
    assert "no room beyond its reserve" in dispatcher.stall_reason


def test_what_is_in_flight_on_average_takes_nothing_of_what_may_be_used():
    reserve, free = Reserve(), []
    for second in range(100):
        room = Room(0, 2_000 if second % 2 else 0, {}, 100.0, 0)
        free.append(reserve.count_admissible_events(room, 2**20, 2**19, float(second)))
    assert sum(free[-20:]) / 20 == pytest.approx(2**19 / 100, rel=0.02)


def test_a_tenth_of_a_result_queue_that_is_smaller_than_the_reserve_is_used(dispatcher, publish, control):
    steer(control, result_bytes=2**20, reserve_bytes=2**26)
    publish(20_000)
    assert 0 < dispatcher.step() <= 2**20 / 10 / 120 + 512


def test_the_size_of_an_event_follows_the_newest_results(control):
    results = ResultQueue(control, "app")
    for tick in range(1, 61):
        attempt = results.begin("iap1", tick - 1, tick)
        size_bytes = 100 if tick <= 30 else 300
        blob = Blob("b", "key", -1, 0, 9, 10, 10 * size_bytes)
        results.publish(Result("iap1", tick, None, (blob,)), attempt, 10)
        if tick == 30:
            assert results.measure_room().bytes_per_event == pytest.approx(100)
    assert results.measure_room().bytes_per_event == pytest.approx(300, rel=0.05)


def test_two_batches_are_handed_out_ahead_and_no_more(dispatcher, publish, control):
    steer(control, admit_events_per_batch=4_096)
    publish(30_000)
    assert [dispatcher.step() for _ in range(3)] == [4_096, 4_096, 0]
    assert dispatcher.stall_reason == "8,192 dispatched events have no result yet"
    work(control)
    assert dispatcher.step() == 4_096


def test_containers_keep_what_has_no_result_yet_and_let_go_of_the_rest(dispatcher, publish, control, nodes, times):
    publish(20_000)
    dispatcher.step()
    times.now += 1.0
    dispatcher.step()
    waiting = [Segment(server.client(), "telemetry").measure()["length_blocks"] for server in nodes.values()]
    assert sum(waiting) == -(-20_000 // 512) or sum(waiting) >= 39
    work(control)
    times.now += 1.0
    dispatcher.step()
    counters = [Segment(server.client(), "telemetry").get_counters() for server in nodes.values()]
    assert sum(each["removed_events"] for each in counters) == 20_000


def test_a_durable_queue_keeps_events_until_the_disk_of_the_control_server_has_their_results(
    dispatcher, publish, control, nodes, plant_topology, times
):
    publish(20_000)
    telemetry = replace(plant_topology.queues["telemetry"], durability="disk")
    topology = replace(plant_topology, queues={**plant_topology.queues, "telemetry": telemetry})
    control.set(keys.TOPOLOGY, topology.to_json())

    def count_removed() -> int:
        segments = [Segment(server.client(), "telemetry") for server in nodes.values()]
        return sum(segment.get_counters()["removed_events"] for segment in segments)

    for _ in range(3):
        dispatcher.step()
        work(control)
        times.now += 1.0
    assert count_removed() == 0
    for _ in range(5):
        dispatcher.step()
        times.now += 1.0
    assert count_removed() == 20_000


def test_a_second_dispatcher_is_refused_and_changes_nothing(dispatcher, publish, control_server, control, times):
    other = Dispatcher(control_server.url, "app", ("telemetry",), REPLICAS, Controls(), monotonic=times)
    publish(1_000)
    assert dispatcher.step() == 1_000
    publish(1_000)
    times.now += 1.0
    with pytest.raises(DispatcherOvertaken):
        other.step()
    assert sum(given(control).values()) == 1_000
    other.close()


def test_wrong_controls_change_nothing(dispatcher, publish, control):
    control.set(keys.PIPELINE_CONTROLS.build("app"), json.dumps({"admit_events_per_batch": "many"}))
    publish(1_000)
    assert dispatcher.step() == 1_000


def test_a_few_events_are_gathered_and_many_are_not(dispatcher, publish, times):
    publish(100)
    assert dispatcher.step() == 100, "after a silence nothing is waited for"
    publish(100)
    assert dispatcher.step() == 0
    times.now += compute_gathering_seconds(1.0)
    assert dispatcher.step() == 100
    publish(5_000)
    assert dispatcher.step() == 5_000


def test_a_few_events_wait_little_of_what_they_wait_for_late_ones():
    assert [compute_gathering_seconds(lateness) for lateness in (0.0, 2.5, 5.0, 60.0)] == [0.5, 1.0, 2.0, 2.0]


def test_a_declared_latency_sets_how_long_a_few_events_wait():
    waits = [compute_gathering_seconds(5.0, latency_seconds=latency) for latency in (0.125, 1.0, 600.0)]
    assert waits == [0.0125, 0.1, 2.0]


def test_steps_are_short_while_events_arrive_at_a_high_rate(dispatcher, publish, control, times):
    steer(control, latency_seconds=0.1)
    publish(100)
    dispatcher.step()
    assert dispatcher.pause_seconds == CALM_PAUSE_SECONDS
    for _ in range(3):  # 5,000 events/s
        times.now += 0.02
        publish(100)
        assert dispatcher.step() == 100
        assert dispatcher.pause_seconds == pytest.approx(0.01), "a tenth of the declared latency"
    times.now += BUSY_SECONDS
    publish(100)
    dispatcher.step()
    assert dispatcher.pause_seconds == CALM_PAUSE_SECONDS


def test_the_next_event_is_awaited_while_many_arrive(dispatcher, publish, control, times, monkeypatch):
    awaited: list[dict[str, dict[str, str]]] = []
    monkeypatch.setattr(ArrivalWatch, "await_entry", lambda _, known, seconds: awaited.append(dict(known)))
    publish(100)
    dispatcher.step()
    dispatcher.await_events()
    assert not awaited, "few events arrive"
    publish(40_000)
    dispatcher.step()
    dispatcher.await_events()
    read = {tuple(after.items()) for after in awaited.pop().values()}
    assert read == {(("telemetry", entry_id),) for entry_id in dispatcher.cursor.ids.values()}
    steer(control, admit_events_per_batch=512)
    publish(40_000)
    work(control)
    dispatcher.step()
    dispatcher.await_events()
    assert not awaited, "events wait already"


def test_event_time_follows_a_producer_in_order_without_lateness(control_server, control, plant_topology, times):
    producers = {"telemetry": ("gateway",)}
    made = Dispatcher(control_server.url, "app", ("telemetry",), REPLICAS, CALM, producers, times)
    begin_us = time.time_ns() // 1000 - 60_000_000
    with Client(control_server.url, "gateway", in_order=True) as client:
        for seconds in range(3):
            event = {"type": "t", "source": "s", "time": (begin_us + seconds * 1_000_000) / 1e6}
            client.publish("telemetry", [event] * 3_000)
            assert made.step() == 3_000
    begun = [(watermark_us - begin_us) / 1e6 for watermark_us in [made.cursor.watermark_us]]
    assert begun == [pytest.approx(2.0, abs=0.001)], "the first call counts after the lateness of 1 s"
    assert Dispatches(control, "app").load_cursor() == made.cursor
    with Client(control_server.url, "other") as client:
        client.publish("telemetry", [{**event, "time": event["time"] + 0.5}] * 3_000)
    assert made.step() == 3_000
    assert (made.cursor.watermark_us - begin_us) / 1e6 == pytest.approx(2.0, abs=0.001), "it is not declared"
    made.close()


def test_only_the_sessions_of_declared_producers_are_read(control_server, control, plant_topology, times, monkeypatch):
    key, producers = keys.PRODUCER_SESSIONS.build("telemetry"), {"telemetry": ("silent", "gateway")}
    control.hset(key, mapping={f"other-{number}": "f" * 16 for number in range(100)})
    made = Dispatcher(control_server.url, "app", ("telemetry",), REPLICAS, CALM, producers, times)
    sent, execute = [], made._control.execute_command
    monkeypatch.setattr(
        made._control, "execute_command", lambda *words, **how: sent.append(words) or execute(*words, **how)
    )
    with Client(control_server.url, "gateway", in_order=True) as client:
        client.publish("telemetry", [{"type": "t", "source": "s"}] * 3_000)
        assert made.step() == 3_000
    assert [words for words in sent if key in words] == [("HMGET", key, "silent", "gateway")]
    session = control.hget(key, "gateway").decode()
    assert {name: own.session for name, own in made.cursor.producers.sessions.items()} == {"telemetry/gateway": session}
    made.close()


def test_after_a_restart_the_cursor_goes_on(dispatcher, publish, control_server, control, times):
    publish(1_000)
    dispatcher.step()
    again = Dispatcher(control_server.url, "app", ("telemetry",), REPLICAS, Controls(), monotonic=times)
    publish(500)
    assert again.step() == 500
    again.close()


def test_what_was_dispatched_without_a_rate_is_no_debt_to_the_rate_that_follows(dispatcher, publish, control, times):
    publish(100_000)
    assert dispatcher.step() == 100_000
    work(control)
    steer(control, admit_events_per_second=5_000)
    publish(20_000)
    dispatcher.step()
    times.now += 1.0
    assert 5_000 <= dispatcher.step() < 5_000 + 512


def test_a_small_allowance_reaches_every_container_in_turn(dispatcher, publish, control, times, nodes):
    steer(control, admit_events_per_second=512)
    publish(60 * 512)
    for _ in range(7):
        times.now += 1.0
        dispatcher.step()
        work(control)
    ids = dispatcher.cursor.ids
    assert {container.split("/")[1] for container in ids} == set(nodes)


@pytest.mark.parametrize(
    ("controls", "reason"),
    [
        ({"admit_events_per_second": 0}, "the admission limit is 0 events/s"),
        ({"admit_events_per_batch": 0}, "admit_events_per_batch is 0"),
    ],
)
def test_the_limit_that_holds_everything_back_is_named(controls, reason, dispatcher, publish, control):
    steer(control, **controls)
    publish(1_000)
    assert dispatcher.step() == 0
    assert dispatcher.stall_reason == reason
    steer(control)
    assert dispatcher.step() == 1_000
    assert dispatcher.stall_reason is None


def test_a_node_that_can_not_be_read_is_reported_and_the_others_go_on(dispatcher, publish, nodes):
    publish(3_000)
    nodes["n2"].kill()
    assert 0 < dispatcher.step() < 3_000
    assert dispatcher.skipped == ("n2",)
    assert dispatcher.stall_reason == "n2 can't be read"


def test_what_was_published_meanwhile_is_not_abandoned(control):
    results = ResultQueue(control, "app")
    results.put("iap1", 3, results.begin("iap1", 0, 3), {"b": b"rows"})
    attempt = results.begin("iap1", 0, 3)
    assert not control.exists("weir:pipeline:result:app:iap1:3")
    results.put("iap1", 3, attempt, {"b": b"rows"})
    results.publish(Result("iap1", 3, None, ()), attempt, 1)
    assert results.begin("iap1", 0, 3) is None
    assert control.exists("weir:pipeline:result:app:iap1:3")


def test_an_attempt_that_was_overtaken_adds_nothing_and_publishes_nothing(control):
    results = ResultQueue(control, "app")
    old, new = results.begin("iap1", 0, 3), results.begin("iap1", 0, 3)
    results.put("iap1", 3, new, {"b": b"rows"})
    with pytest.raises(AttemptOvertaken):
        results.put("iap1", 3, old, {"b": b"rows cut otherwise"})
    with pytest.raises(AttemptOvertaken):
        results.publish(Result("iap1", 3, None, ()), old, 1)
    assert results.publish(Result("iap1", 3, None, ()), new, 1)
    with pytest.raises(AttemptOvertaken):
        results.put("iap1", 3, new, {"c": b"too late"})
    assert control.hgetall("weir:pipeline:result:app:iap1:3") == {b"b": b"rows"}


def test_a_dispatch_whose_answer_was_lost_is_handed_out_once_and_stops_nobody(
    dispatcher, publish, control, times, monkeypatch
):
    commit = dispatcher._dispatches.commit

    def unheard(*arguments):
        commit(*arguments)
        raise redis.TimeoutError("nothing heard")

    publish(3_000)
    with monkeypatch.context() as patch:
        patch.setattr(dispatcher._dispatches, "commit", unheard)
        with pytest.raises(redis.TimeoutError):
            dispatcher.step()
    publish(3_000)
    times.now += 1.0
    assert dispatcher.step() == 3_000
    assert sum(given(control).values()) == 6_000


def test_a_full_result_queue_whose_rows_wait_for_event_time_lets_a_block_through_at_a_time(
    dispatcher, publish, control, times
):
    steer(control, result_bytes=2**20)
    publish(40_000)
    dispatcher.step()
    work(control, size_bytes=2**20)
    given = []
    for _ in range(9):
        times.now += 1.0
        given.append(dispatcher.step())
        assert "the result queue has no room" in dispatcher.stall_reason
        work(control, size_bytes=2**20)
    assert given == [0, 512, 0, 512, 0, 512, 0, 512, 0], "it stays a block while there is no room"
    steer(control, result_bytes=2**20, admit_events_per_second=0)
    for _ in range(4):
        times.now += 1.0
        assert dispatcher.step() == 0, "nothing is what was asked for"


def test_a_rate_that_keeps_event_time_from_going_on_is_passed_until_something_leaves_the_queue(
    dispatcher, publish, control, times
):
    steer(control, admit_events_per_second=1.0)
    publish(40_000)
    times.now += 1.0
    assert dispatcher.step() == 512
    work(control, size_bytes=1_000)
    given = []
    for _ in range(5):
        times.now += 2.0
        given.append(dispatcher.step())
        work(control, size_bytes=1_000)
    assert given == [512, 1_024, 2_048, 4_096, 8_192]
    results = ResultQueue(control, "app")
    results.release(results.read_after("0-0")[0])
    assert dispatcher.step() == 0
    times.now += 2.0
    assert dispatcher.step() == 512, "it begins anew"


def pause(control, seconds: float = 60.0) -> None:
    until = pausing.Pause(1_000.0 + seconds, "a disk is changed", "ada")
    pausing.pause(control, "telemetry", pausing.CONSUMPTION, until, 1_000.0)


def test_nothing_of_a_paused_queue_is_dispatched_and_all_of_it_after(dispatcher, publish, control, times):
    publish(5_000)
    pause(control)
    assert dispatcher.step() == 0
    assert dispatcher.stall_reason == "consumption of telemetry is paused"
    times.now += 30.0
    assert dispatcher.step() == 0
    pausing.resume(control, "telemetry", pausing.CONSUMPTION)
    assert dispatcher.step() == 5_000
    assert sum(given(control).values()) == 5_000 and dispatcher.stall_reason is None


def test_nothing_is_dispatched_while_what_was_found_has_no_room(dispatcher, publish, control, times):
    publish(5_000)
    assert dispatcher.step(full=True) == 0
    assert dispatcher.stall_reason == "the outbox of complex events is full: their queues accept no events"
    assert dispatcher.step() == 5_000
    assert sum(given(control).values()) == 5_000 and dispatcher.stall_reason is None


def test_event_time_waits_for_a_paused_queue_so_that_nothing_of_it_is_late(dispatcher, publish, control, times):
    publish(2_000)
    dispatcher.step()
    work(control)
    before = dispatcher.cursor.watermark_us
    pause(control, seconds=600.0)
    publish(2_000)
    for _ in range(20):
        times.now += 5.0
        dispatcher.step()
    assert dispatcher.cursor.watermark_us == before


def test_what_a_replica_of_a_version_before_was_given_stays_until_it_is_worked(
    dispatcher, publish, control, control_server, plant_topology, times
):
    """The second replica has published nothing yet when a version with one replica takes over."""
    publish(20_000)
    assert dispatcher.step() == 20_000
    given_to_second = given(control)["iap2"]
    results, dispatches = ResultQueue(control, "app"), Dispatches(control, "app")
    assigned = dispatches.list_after("iap1", 0)
    result = Result("iap1", assigned[-1].tick, None, ())
    results.publish(result, results.begin("iap1", 0, result.tick), sum(each.events for each in assigned))
    again = Dispatcher(control_server.url, "app", ("telemetry",), ("iap1",), CALM, monotonic=times)
    times.now += 1.0
    again.step()
    again.close()
    assert events_of(dispatches.list_after("iap2", 0), plant_topology) == given_to_second > 5_000


def events_of(assignments, topology) -> int:
    """How many of the events that were assigned can still be read."""
    connected, found = Nodes(5.0), 0
    for part in (part for each in assignments for part in each.parts):
        queue, node = part.container.split("/")
        whole = Range(queue, node, topology.nodes[node].url, part.after, part.through)
        found += sum(each.batch.num_rows for each in read_range(connected, whole, 1.0, Faults(10**12, 0)))
    connected.close()
    return found


def test_what_comes_to_a_node_that_was_ahead_and_is_empty_now_is_dispatched_and_kept(
    control_server, control, plant_topology, nodes, times
):
    """Its clock was an hour ahead; it was replaced by an empty one with the right clock."""
    node = nodes["n1"].client()
    segment = Segment(node, "telemetry")
    (block,) = cut(from_events([{"type": "t", "source": "s"}] * 10, 0), BlockIds())
    stored = {"i": block.block_id, "n": 10, "t": block.newest_time_us, "d": bytes(block.data)}
    node.xadd(segment.stream, stored, id=f"{round(time.time() * 1000) + 3_600_000}-0")
    first = Dispatcher(control_server.url, "app", ("telemetry",), REPLICAS, CALM, monotonic=times)
    assert first.step() == 10
    work(control)
    node.flushall()
    segment.publish(list(cut(from_events([{"type": "t", "source": "s"}] * 500, 0), BlockIds())))
    # A restart of the pipeline, which trims by what it finds of the cursor before it reads anything.
    first.close()
    again = Dispatcher(control_server.url, "app", ("telemetry",), REPLICAS, CALM, monotonic=times)
    again._trim(plant_topology)
    assert segment.measure()["length_blocks"] == 1
    times.now += 1.0
    assert again.step() == 500
    again._trim(plant_topology)
    assert segment.measure()["length_blocks"] == 1
    work(control)
    again._trim(plant_topology)
    assert segment.measure()["length_blocks"] == 0
    again.close()
