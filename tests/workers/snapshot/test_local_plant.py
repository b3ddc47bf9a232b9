"""The snapshot: its shape, and that what it says of the plant is true; and the workers that the plant starts."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from common.stored_document import convert_to_plain
from controllers.retries.circuit import DestinationCalls
from queues import keys
from queues.topology import Topology
from tests.workers.loops import JOBS, PLANT, ensured
from workers.batch import task_definitions
from workers.consumer.destination import SharedLimit
from workers.consumer.work_report import Latencies, Report, WorkReporter, submit
from workers.coordination.plant_clock import Freshness
from workers.documents.consumer_groups import ConsumerGroup
from workers.documents.plants import PlantStatus
from workers.documents.queues import EventSample
from workers.history.forecasts import ForecastWatch
from workers.models import LedgerEntry, Loop, Override, Run
from workers.plants.holding import hold
from workers.retries.models import RetryPlan
from workers.snapshot.compose import limit_sample
from workers.snapshot.local import LocalPlant
from workers.snapshot.rates import Rates

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plant_topology")]

NOW = 1_790_000_000.2


EXAMPLE = Path(__file__).parents[1] / "documents" / "snapshot.json"


class Times:
    """A wall clock and a monotonic one that a test moves."""

    def __init__(self) -> None:
        self.wall_seconds, self.monotonic_seconds = NOW, 5_000.0

    def pass_by(self, seconds: float, wall_jump_seconds: float = 0.0) -> None:
        self.wall_seconds += seconds + wall_jump_seconds
        self.monotonic_seconds += seconds


@pytest.fixture
def times():
    return Times()


@pytest.fixture
def plant(control, times):
    return LocalPlant(control, lambda: times.wall_seconds, lambda: times.monotonic_seconds)


def beat(control: redis.Redis, node: str, seq: int, at: float = NOW, **counts: int) -> None:
    """A heartbeat of a node that holds a container of each queue, with the same counts."""
    names = ("inserted_events", "inserted_bytes", "removed_events", "removed_bytes", "dead_events")
    lengths = ("inserted_blocks", "removed_blocks", "length_blocks", "pending_blocks", "retry_blocks", "dead_letters")
    counters: dict[str, Any] = dict.fromkeys((*names, *lengths), 0) | counts
    container = {**counters, "oldest_seconds": 1.5 if counters["inserted_events"] else None}
    heartbeat = {
        "node": node,
        "seq": seq,
        "at": at,
        "state": "NORMAL",
        "utilisation": 0.31,
        "raw": 0.29,
        "parts": {"cpu": 0.29, "memory": 0.02, "events": 0.01},
        "memory_bytes": 1_000,
        "containers": dict.fromkeys(("alert", "process", "telemetry"), container),
    }
    control.hset("weir:heartbeats", node, json.dumps(heartbeat))


def beat_all(control: redis.Redis, seq: int, **counts: int) -> None:
    for node in ("n1", "n2", "n3"):
        beat(control, node, seq, **counts)


HOST = {
    "role": "jobs",
    "slots": 2,
    "pid": 1,
    "at": NOW,
    "resizable": True,
    "started_with": 2,
    "trouble": "",
    "done": {"seq": 0, "recent_seconds": [], "full_seconds": 0.0, "per_second": None},
}


def host(control: redis.Redis, at: float = NOW, busy: int = 1) -> None:
    control.hset("weir:hosts", "jobs@here", json.dumps({**HOST, "busy": busy, "at": at}))


def pipeline(control: redis.Redis, at: float = NOW, **more: Any) -> None:
    status = {"state": "running", "batch": 3, "in_per_second": 30.0, "at": at, "error": None, **more}
    control.set("weir:pipeline", json.dumps(status))


# Shape
def documented() -> Any:
    """Return the example snapshot, which has every documented key."""
    return json.loads(EXAMPLE.read_text(encoding="utf-8"))


def check_shape(expected: Any, actual: Any, path: str = "snapshot") -> None:
    """Every documented key is there; numbers, texts and objects are what they are documented to be (or
    unknown).
    """
    if isinstance(expected, dict):
        assert isinstance(actual, dict), path
        for name, value in expected.items():
            assert name in actual, f"{path}.{name} is missing"
            check_shape(value, actual[name], f"{path}.{name}")
    elif isinstance(expected, list):
        assert isinstance(actual, list), path
    elif expected is not None and actual is not None:
        kind = (int, float) if isinstance(expected, int | float) else type(expected)
        assert isinstance(actual, kind), f"{path} is {actual!r}"


def renamed(document: Any) -> Any:
    """The document's example names a producer, a host and rules; here they are looked up by position."""
    example = dict(document)
    example["pipeline"] = {**example["pipeline"], "patterns": {}, "rules": [], "applications": {}}
    example["plants"] = example["forecasts"] = {}
    example["bands"] = {"totals": {}, "queues": {}}
    example["hosts"] = {"jobs@here": example["hosts"]["jobs@host"]}
    return example


def test_a_producer_s_sample_makes_no_large_snapshot_however_much_it_says():
    many = {f"{number}{'k' * 10_000}": number for number in range(2_000)}
    sample = limit_sample(EventSample(events=10, type={"a": 10}, key=many, source={}))
    assert sample.type == {"a": 10} and list(sample.key.values()) == list(range(1_999, 1_991, -1))
    assert max(map(len, sample.key)) <= 80


def test_the_snapshot_has_every_documented_key(control, plant, plant_topology, times, admin_user):
    ensured(control, (*JOBS, *PLANT), plant_topology)
    now = datetime.fromtimestamp(NOW, UTC)
    Loop.objects.filter(name="worker_rate/alert/n1").update(ticked_at=now, decided_at=now)
    loop = Loop.objects.get(name="worker_rate/alert/n1")
    LedgerEntry.objects.create(
        loop=loop,
        at=now,
        mode="auto",
        parameters={"upper_limit": 1000},
        observation={"queue_length": 12},
        action={"start": 1},
        applied=True,
        reason="Because.",
        verdict="effective",
        terms={"rate_per_second": 0.2, "arrivals_per_second": 141.2, "coming": 88},
    )
    Run.objects.create(pk=89, task=task_definitions.define("retention", "retention"), single_instance=True)
    Override.objects.create(
        loop=loop,
        name="upper_limit",
        value=500,
        instead_of=1000,
        owner=admin_user,
        reason="night",
        created_at=now - timedelta(minutes=1),
        expires_at=now + timedelta(minutes=2),
    )
    sample = {"events": 10, "type": {"cpu": 10}, "key": {"total": 10}, "source": {"host": 10}}
    producer = {"events": 10, "blocks": 1, "rejected": 0, "rerouted": 0, "at": NOW, "sample": sample}
    control.hset("weir:producers", "host|telemetry", json.dumps(producer))
    host(control)
    pipeline(control)
    hold(control, "main", "token:weir-2", NOW)
    beat_all(control, 1)
    plant.observe()
    times.pass_by(1.0)
    beat_all(control, 2)
    later = {**producer, "events": 20, "at": NOW + 1.0}
    control.hset("weir:producers", "host|telemetry", json.dumps(later))
    snapshot = convert_to_plain(plant.observe())
    check_shape(renamed(documented()), snapshot)
    assert json.loads(json.dumps(snapshot, allow_nan=False)) == snapshot
    row = snapshot["loops"]["worker_rate/alert/n1"]
    assert (row["measured"], row["setpoint"], row["actuator"], row["overrides"]) == (12, 500, 1, 1)
    assert snapshot["overrides"][0]["owner"] == "admin"


def test_a_plant_of_which_nothing_is_known_says_unknown_and_never_zero(plant):
    snapshot = convert_to_plain(plant.observe())
    assert snapshot["nodes"]["n1"]["state"] is None
    assert snapshot["nodes"]["n1"]["utilisation"] is None
    container = snapshot["queues"]["alert"]["containers"]["n1"]
    assert container["waiting_events"] is None and container["in_per_second"] is None
    assert snapshot["totals"]["backlog_events"] is None
    assert snapshot["pipeline"]["state"] is None


def test_what_comes_to_a_plant_whose_tasks_can_be_set_is_forecast_beside_applications(control, plant_topology):
    at = NOW - 60.0 * np.arange(20)[::-1] - 60
    forecasts = ForecastWatch(lambda series, now: (at, np.full((len(series), at.size), 5.0)))
    shop = PlantStatus(kind="flink", state="seen", tasks=2, in_per_second=5.0)
    rows = {"shop": shop, "logs": PlantStatus(kind="kafka", state="seen", in_per_second=9.0)}
    plant = LocalPlant(
        control, others=SimpleNamespace(collect_rows=lambda: rows, take_restored=dict), forecasts=forecasts
    )
    plant.observe()
    forecasts.wait()
    rows = plant.observe().forecasts
    assert (
        set(rows) == {"plant:shop", "queue:alert", "queue:process", "queue:telemetry"}
        and rows["plant:shop"].mean_per_second
    )


def test_the_lag_of_a_consumer_group_that_was_gone_is_watched_anew(control, times):
    """Of groups that come and go, each under a name of its own, nothing is kept."""
    groups: dict[str, ConsumerGroup] = {}

    def rows():
        return {"logs": PlantStatus(kind="kafka", state="seen", groups=dict(groups))}

    clocks = (lambda: times.wall_seconds, lambda: times.monotonic_seconds)
    plant = LocalPlant(control, *clocks, others=SimpleNamespace(collect_rows=rows, take_restored=dict))
    for second in range(20):
        groups["billing"] = ConsumerGroup(lag_events=1_000 * second)
        times.pass_by(1.0)
        seen = plant.observe().plants["logs"]
    assert seen.groups["billing"].trend == "rising"
    back = groups.pop("billing")
    plant.observe()
    groups["billing"] = back
    assert plant.observe().plants["logs"].groups["billing"].trend is None


# Counts and rates
def test_rates_are_what_was_counted_between_observations(control, plant, times):
    beat_all(control, 1, inserted_events=100, removed_events=40)
    assert convert_to_plain(plant.observe())["queues"]["alert"]["in_per_second"] is None
    times.pass_by(2.0)
    beat_all(control, 2, inserted_events=300, removed_events=140)
    queue = convert_to_plain(plant.observe())["queues"]["alert"]
    assert queue["containers"]["n1"]["in_per_second"] == 100.0
    assert queue["in_per_second"] == 300.0
    assert queue["out_per_second"] == 150.0
    assert queue["waiting_events"] == 3 * 160
    assert queue["clearing_seconds"] == pytest.approx(480 / 150)


def test_a_topology_that_can_not_be_read_makes_no_plant_empty(control, plant):
    before = plant.observe()
    control.set(keys.TOPOLOGY, b'{"newer": 1}')
    assert set(plant.observe().nodes) == set(before.nodes) != set()


def test_a_producer_that_reports_what_can_not_be_read_hides_no_other(control, plant):
    row = json.dumps({"at": NOW, "events": 1})
    control.hset(keys.PRODUCERS, mapping={"shop|alert": "[", "till|alert": row, "desk|alert": "3"})
    assert list(plant.observe().producers) == ["till"]


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20))
def test_the_rate_of_a_steady_counter_is_the_mean_over_the_window(steps):
    rates, counter, rate = Rates(), 0, None
    for second, step in enumerate(steps):
        counter += step if second else 0
        rate = rates.add("c", counter, float(second), window_seconds=3.0)
    recent = steps[1:][-3:]
    assert rate == pytest.approx(sum(recent) / len(recent))


def test_events_left_behind_on_a_node_without_points_are_still_shown(control, plant, plant_topology):
    document = json.loads(plant_topology.to_json())
    document["queues"]["alert"]["points"] = {"n1": 500, "n2": 500}
    control.set(keys.TOPOLOGY, json.dumps(document))
    beat_all(control, 1, inserted_events=7)
    containers = convert_to_plain(plant.observe())["queues"]["alert"]["containers"]
    assert (containers["n3"]["points"], containers["n3"]["waiting_events"]) == (0, 7)


# Age
def test_a_node_is_stale_after_two_beats_and_offline_after_three(control, plant, times):
    beat_all(control, 1, inserted_events=5)
    plant.observe()
    seen = []
    for second in range(2, 7):
        times.pass_by(1.0)
        beat(control, "n1", second)
        beat(control, "n3", second)
        if second == 2:
            beat(control, "n2", second)
        snapshot = convert_to_plain(plant.observe())
        seen.append((snapshot["nodes"]["n2"]["state"], snapshot["nodes"]["n2"]["stale"]))
    assert seen == [("NORMAL", False), ("NORMAL", False), ("NORMAL", True), ("OFFLINE", True), ("OFFLINE", True)]
    assert snapshot["nodes"]["n2"]["last_state"] == "NORMAL"
    assert snapshot["queues"]["alert"]["containers"]["n2"]["in_per_second"] is None
    assert snapshot["totals"]["nodes_in_use"] == 2
    (lost,) = (each for each in snapshot["health"]["findings"] if each["subject"] == "node/n2")
    assert (lost["sign"], lost["sentence"]) == ("OFFLINE", "Node n2 stopped reporting.")
    assert lost["impact"].startswith("The node has 999 points of alert, process, and telemetry. n1 and n3 take new")


def test_what_came_while_an_agent_was_silent_falls_into_no_single_second(control, plant, times):
    """1,000 events/s all the time; the agent is frozen for eight seconds."""
    rates = []
    for second in range(1, 20):
        times.pass_by(1.0)
        if not 6 <= second <= 13:
            beat_all(control, second, inserted_events=1_000 * second)
        found = convert_to_plain(plant.observe())["queues"]["alert"]["containers"]["n2"]["in_per_second"]
        rates += [found] if second >= 2 and found is not None else []
    assert len(rates) > 8 and {round(rate) for rate in rates} == {1_000}


@pytest.mark.parametrize("jump_seconds", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_makes_no_node_old(control, plant, times, jump_seconds):
    beat_all(control, 1)
    plant.observe()
    times.pass_by(1.0, jump_seconds)
    beat_all(control, 2)
    host(control, NOW)
    snapshot = convert_to_plain(plant.observe())
    assert all(node["state"] == "NORMAL" and not node["stale"] for node in snapshot["nodes"].values())


def test_a_mark_is_as_old_as_it_says_when_first_seen_and_by_the_watchers_clock_afterwards():
    freshness = Freshness()
    assert freshness.compute_age_seconds("a", 1, 100.0, lag_seconds=40.0) == 40.0
    assert freshness.compute_age_seconds("a", 2, 101.0, lag_seconds=4000.0) == 1.0
    assert freshness.compute_age_seconds("a", 2, 103.0, lag_seconds=-9.0) == 3.0


def test_hosts_and_a_pipeline_that_fell_silent_are_not_shown_as_working(control, plant, times):
    host(control)
    pipeline(control)
    first = convert_to_plain(plant.observe())
    assert (first["totals"]["worker_slots"], first["totals"]["workers_busy"]) == (2, 1)
    assert first["pipeline"]["state"] == "running"
    times.pass_by(20.0)
    later = convert_to_plain(plant.observe())
    assert (later["hosts"], later["totals"]["worker_slots"]) == ({}, 0)
    assert later["pipeline"]["state"] == "offline"


# Workers
def test_who_never_started_and_who_was_killed_leave_nothing_on_the_control_server(control, plant, times):
    """Also who was noted by a clock that was an hour ahead."""
    submit(control, "alert", "n1", ["ahead"], NOW + 3_600)
    WorkReporter(control, "alert", "n1", "ahead").begin(NOW + 3_600)
    for number in range(50):
        submit(control, "alert", "n1", [f"s{number}"], NOW + 10 * number)
        WorkReporter(control, "alert", "n1", f"k{number}").begin(NOW + 10 * number)
    assert control.zcard(keys.SUBMITTED.build("alert", "n1")) <= 7
    assert control.zcard(keys.RUNNING.build("alert", "n1")) <= 2
    times.pass_by(490.0)
    container = convert_to_plain(plant.observe())["queues"]["alert"]["containers"]["n1"]
    assert (container["waiting_to_run"], container["workers_busy"]) == (6, 1)


def test_a_worker_is_waiting_then_busy_then_done(control, plant):
    def container():
        row = convert_to_plain(plant.observe())["queues"]["alert"]["containers"]["n1"]
        return row["waiting_to_run"], row["workers_busy"], row["workers_started"]

    submit(control, "alert", "n1", ["a"], NOW)
    assert container() == (1, 0, 0)
    reporter = WorkReporter(control, "alert", "n1", "a")
    assert reporter.begin(NOW) is True
    assert container() == (0, 1, 1)
    reporter.end(Report(events=5))
    assert container() == (0, 0, 1)
    assert reporter.begin(NOW) is False


def test_the_p95_is_of_the_last_seconds_only(control, plant, times):
    WorkReporter(control, "alert", "n1", "a").end(Report(latencies=Latencies.build([(100.0, 1000)])))
    plant.observe()
    times.pass_by(1.0)
    WorkReporter(control, "alert", "n1", "b").end(Report(latencies=Latencies.build([(0.5, 10)])))
    snapshot = convert_to_plain(plant.observe())
    assert snapshot["queues"]["alert"]["latency_p95_seconds"] == pytest.approx(0.5, rel=0.06)
    assert snapshot["totals"]["latency_p95_seconds"] == pytest.approx(0.5, rel=0.06)
    for _ in range(17):
        times.pass_by(1.0)
        snapshot = convert_to_plain(plant.observe())
    assert snapshot["queues"]["alert"]["latency_p95_seconds"] is None


# Health


# Starting workers
def test_a_loop_whose_target_comes_back_has_not_been_without_a_measurement_meanwhile(plant, times):
    Loop.objects.create(name="worker_rate", law="worker_rate", target={})
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})
    given = {"mode": "auto", "parameters": {}, "reason": "a test", "limited_by": "stale measurement"}
    for seconds, target in ((-60, {}), (-40, {"retired_at": "revision 3"}), (-10, {})):
        at = datetime.fromtimestamp(NOW + seconds, UTC)
        Loop.objects.filter(pk=loop.pk).update(target=target, ticked_at=at, decided_at=at)
        if not target:
            LedgerEntry.objects.create(loop=loop, at=at, **given)
        seen = plant.observe().loops.get("rebalancing")
        times.pass_by(1)
    assert seen is not None and seen.blind_since == pytest.approx(NOW - 10, abs=0.01)


def test_since_when_a_loop_is_without_a_valid_measurement_is_not_sought_anew_each_second(plant, times):
    loop = Loop.objects.create(name="rebalancing", law="rebalancing", target={})

    def ticked(seconds):
        at = datetime.fromtimestamp(NOW + seconds, UTC)
        given = {"mode": "auto", "parameters": {}, "reason": "a test", "limited_by": "stale measurement"}
        LedgerEntry.objects.create(loop=loop, at=at, **given)
        Loop.objects.filter(pk=loop.pk).update(ticked_at=at, decided_at=at)

    ticked(-20)
    ticked(-10)
    since = pytest.approx(NOW - 20, abs=0.01)
    assert plant.observe().loops["rebalancing"].blind_since == since
    LedgerEntry.objects.earliest("at").delete()  # retention
    ticked(0)
    times.pass_by(1)
    assert plant.observe().loops["rebalancing"].blind_since == since


@pytest.mark.usefixtures("broker")
def test_workers_are_counted_and_sent_with_the_queues_priority(control, plant):
    assert plant.start_workers("alert", "n1", 2, ["a", "b"]) == ["a", "b"]
    assert control.zcard("weir:submitted:alert:n1") == 2
    sent = [name for name in control.keys("weir:celery:jobs*") if control.type(name) == b"list"]
    assert [control.llen(name) for name in sent] == [2]
    assert sent[0].endswith(b":5")


@pytest.mark.usefixtures("broker")
def test_a_plant_parses_its_topology_once_for_all_workers_that_it_starts(plant, monkeypatch):
    """With 5,000 containers, each time takes 12 ms."""
    parsed, parse = [], Topology.from_json
    monkeypatch.setattr(Topology, "from_json", lambda text: parsed.append(text) or parse(text))
    for worker in "abc":
        plant.start_workers("alert", "n1", 1, [worker])
    assert len(parsed) == 1


@pytest.mark.usefixtures("broker")
def test_workers_that_go_ahead_are_sent_before_those_of_every_queue(control, plant):
    plant.start_workers("alert", "n1", 3, ["a", "b", "c"], ahead=1)
    lengths = {name: control.llen(name) for name in (b"weir:celery:jobs", b"weir:celery:jobs:5")}
    assert lengths == {b"weir:celery:jobs": 1, b"weir:celery:jobs:5": 2}


@pytest.mark.parametrize(
    ("queue", "node", "count", "field"),
    [
        ("no", "n1", 1, "queue"),
        ("alert", "n9", 1, "node"),
        ("telemetry", "n1", 1, "queue"),
        ("alert", "n1", 2, "count"),
    ],
)
def test_workers_for_what_is_not_there_are_refused(control, plant, queue, node, count, field):
    with pytest.raises(BadInput) as caught:
        plant.start_workers(queue, node, count, ["a"])
    assert caught.value.field == field
    assert not control.keys("weir:submitted:*")


def test_the_snapshot_has_what_the_tasks_of_an_active_retry_plan_call(plant, control):
    values = {"plant": "shop", "items": b"", "total": 5, "min_rate": 1.0, "max_rate": 9.0, "calls": "pay.example"}
    plan = RetryPlan.objects.create(**values, state="sending", expires_at=datetime.fromtimestamp(NOW, UTC))
    calls = DestinationCalls(failures=20, error="HTTP 503")
    SharedLimit(control, "", "pay.example", lambda: NOW).record(calls)
    row = plant.observe().destinations["pay.example"]
    assert (row.circuit, row.error, row.queues, row.retry_plans) == ("open", "HTTP 503", [], [plan.pk])
    RetryPlan.objects.update(state="done")
    assert "pay.example" not in plant.observe().destinations
