"""Resets of a group's offsets, planned and executed at a real broker (Tansu, not Apache Kafka)."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from tests.workers.plants.foreign.kafka.broker import tansu
from workers.plants.foreign.kafka.group_lag import Offsets
from workers.plants.foreign.kafka.kafka_plant import KafkaPlant
from workers.plants.foreign.kafka.offset_reset import build_partition_reset
from workers.plants.foreign.kind import PlantAddress
from workers.plants.plant import InvalidPlantResponse

GROUP = "billing"


@pytest.fixture(scope="module")
def broker():
    with tansu() as running:
        yield running


@pytest.fixture(scope="module")
def topic(broker):
    broker.create("orders", 2)
    broker.publish("orders", 10)
    broker.publish("orders", 6, partition=1)
    return "orders"


@pytest.fixture
def plant(broker, topic):
    broker.commit(GROUP, topic, 4)
    broker.commit(GROUP, topic, 6, partition=1)
    return KafkaPlant(PlantAddress(name="events", url=broker.url, options={"groups": GROUP}))


def offsets(plan):
    return [(row.now, row.then, row.skipped, row.again) for row in plan.partitions]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("earliest", [(4, 0, 0, 4), (6, 0, 0, 6)]),
        ("latest", [(4, 10, 6, 0), (6, 6, 0, 0)]),
        ("orders/0=7,orders/1=2", [(4, 7, 3, 0), (6, 2, 0, 4)]),
        ("orders/0=99", [(4, 10, 6, 0)]),
    ],
)
def test_a_plan_says_what_each_partition_would_skip_or_read_again_and_changes_nothing(plant, target, expected):
    assert offsets(plant.plan_offset_reset(GROUP, target)) == expected
    assert offsets(plant.plan_offset_reset(GROUP, target)) == expected


def test_a_time_before_all_events_is_their_beginning_and_one_after_them_the_end(plant):
    hour = timedelta(hours=1)
    now = datetime.fromtimestamp(time.time(), UTC)
    assert [row.then for row in plant.plan_offset_reset(GROUP, (now - hour).isoformat()).partitions] == [0, 0]
    assert [row.then for row in plant.plan_offset_reset(GROUP, (now + hour).isoformat()).partitions] == [10, 6]


def test_a_reset_changes_the_offsets_and_the_former_ones_undo_it(plant):
    plant.execute_offset_reset(plant.plan_offset_reset(GROUP, "earliest"))
    assert [row.now for row in plant.plan_offset_reset(GROUP, "latest").partitions] == [0, 0]
    plant.execute_offset_reset(plant.plan_offset_reset(GROUP, "orders/0=4,orders/1=6"))
    assert [row.now for row in plant.plan_offset_reset(GROUP, "latest").partitions] == [4, 6]


def test_offsets_that_are_not_as_planned_afterwards_are_reported(plant, monkeypatch):
    plan = plant.plan_offset_reset(GROUP, "earliest")
    monkeypatch.setattr(plant._cluster, "change_offsets", lambda group, offsets: None)
    with pytest.raises(InvalidPlantResponse, match="2 of 2 partitions have other offsets than the plan"):
        plant.execute_offset_reset(plan)


def test_a_group_with_members_can_not_be_reset(plant, monkeypatch):
    monkeypatch.setattr(plant._cluster, "read_group", lambda name: ("stable", 2, {("orders", 0): 4}))
    with pytest.raises(BadInput, match=r"billing is stable and has 2 members\. Stop its consumers first"):
        plant.plan_offset_reset(GROUP, "earliest")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("yesterday", "must be earliest, latest, a time"),
        ("2026-11-30T20:00:00", "must have a time zone"),
        ("orders=5", "must be earliest, latest, a time"),
        ("orders/0=-1", "must be earliest, latest, a time"),
        ("payroll/0=5", "names payroll/0, for which the group has no committed offset"),
    ],
)
def test_a_target_that_is_none_is_refused_with_what_it_may_be(plant, target, message):
    with pytest.raises(BadInput, match=message) as refused:
        plant.plan_offset_reset(GROUP, target)
    assert refused.value.field == "target"


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 50), st.integers(0, 49))
def test_a_partition_ends_within_its_events_and_either_skips_or_reads_again(now, then, begin, length):
    offsets = Offsets(begin, begin + length)
    row = build_partition_reset(("orders", 0), now, then, offsets)
    assert offsets.begin <= row.then <= offsets.end
    assert min(row.skipped, row.again) == 0
    assert max(row.skipped, row.again) <= length


def test_a_partition_without_a_committed_offset_counts_nothing():
    row = build_partition_reset(("orders", 0), None, 5, Offsets(0, 9))
    assert (row.then, row.skipped, row.again) == (5, 0, 0)
