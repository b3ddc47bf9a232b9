"""The local plant's topology: which parts of a snapshot become operators, tasks, links, and measures."""

import pytest

from common.errors import BadInput
from tests.console.pipeline_sample import sample_application
from tests.workers.snapshots import snapshot_of
from workers.plants.topology import build_topology

CONTAINER = {"dead_per_second": 0.5}


def queue(kind, **more):
    row = {
        "kind": kind,
        "in_per_second": 30.0,
        "out_per_second": 20.0,
        "wait_seconds": 0.4,
        "workers_at_once": None,
        "service_seconds": None,
        "containers": {"n1": CONTAINER},
    }
    return {**row, **more}


def snapshot(**more):
    alert = queue("jobs", in_per_second=0.5, out_per_second=0.5, workers_at_once=1.2, service_seconds=0.25)
    whole = {
        "plant": "main",
        "at": 1_790_000_000.0,
        "queues": {"telemetry": queue("pipeline"), "alert": alert, "orders": queue("jobs")},
        "producers": {"host": {"queues": {"telemetry": 30.0}}, "pipeline-performance": {"queues": {"alert": 1}}},
        "totals": {"worker_slots": 4},
        "pipeline": {"applications": {"performance": sample_application()}},
        "steered_by": None,
    }
    return snapshot_of({**whole, **more})


def test_paths_lead_from_producers_through_the_pipeline_to_the_workers():
    assert set(build_topology(snapshot()).paths.values()) == {
        ("producers/telemetry", "replicas/performance", "performance/hosts", "performance/sites", "alert"),
        ("producers/orders", "orders"),
    }


def test_a_sink_that_others_publish_to_has_a_source_of_its_own():
    others = {"desk": {"queues": {"alert": 1.0}}}
    paths = build_topology(snapshot(producers=others)).paths.values()
    assert ("producers/alert", "alert") in paths


def test_applications_that_feed_each_other_are_refused():
    back = {**sample_application(), "sinks": {"outage": ["telemetry"]}}
    queues = {**snapshot().queues}
    with pytest.raises(BadInput, match=r"cycle|circle"):
        build_topology(snapshot(queues=queues, pipeline={"applications": {"performance": back}}))


def test_only_operators_of_the_pipeline_can_be_set_and_the_others_say_why():
    operators = build_topology(snapshot()).operators
    assert {name for name, each in operators.items() if each.fixed is None} == {
        "performance/hosts",
        "performance/sites",
    }
    assert "worker_rate" in operators["alert"].fixed
    assert (operators["performance/hosts"].minimum, operators["performance/hosts"].maximum) == (1, 64)


def test_measures_come_from_the_snapshot_and_what_is_unknown_stays_so():
    operators = build_topology(snapshot()).operators
    source, workers, idle = operators["producers/telemetry"], operators["alert"], operators["orders"]
    assert (source.failed, source.acked, source.measure("outputs")) == (5.0, 195.0, 300.0)
    assert workers.parallelism == 2  # 1.2 workers at once, on average
    assert workers.measure("service_seconds") == 0.25
    assert workers.measure("executions") == 5.0
    assert idle.measure("service_seconds") is None and idle.parallelism == 1
    hosts = operators["performance/hosts"]
    assert hosts.measure("executions") == 40.0 and hosts.measure("service_seconds") == pytest.approx(0.01)


def test_a_paths_latency_is_the_watermarks_lag_and_the_work_after_it():
    topology = build_topology(snapshot())
    latency = topology.compute_source_latency_seconds("producers/telemetry")
    sample = sample_application()
    after = 0.1 + 0.1 + 0.4 + 0.25  # two operators, the wait for a worker, and its work
    assert latency == pytest.approx(sample["watermark_lag_seconds"] + after)
