"""The division of a publisher's events into lanes."""

import pyarrow as pa
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from queues import fairness, keys
from queues.fairness import LANES, FairnessSettings, KeyWeight, get_override_lane
from queues.publishing.client import Client
from queues.publishing.lanes import GROUPS, HALF_LIFE_SECONDS, LaneSplitter, compute_groups
from queues.segments.segment import Segment
from queues.topology import Topology
from tests.queues.samples import NOW_US, batch_of
from tests.servers import Server


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def batch_of_keys(counts: dict[str | None, int]) -> pa.RecordBatch:
    names = [key for key, count in counts.items() for _ in range(count)]
    return batch_of(len(names), key=pa.array(names, pa.string()))


def lanes_by_key(parts: list[tuple[int, pa.RecordBatch]]) -> dict[str | None, set[int]]:
    lanes: dict[str | None, set[int]] = {}
    for lane, part in parts:
        for key in part.column(4).to_pylist():
            lanes.setdefault(key, set()).add(lane)
    return lanes


EVEN: dict[str | None, int] = {f"k{number}": 10 for number in range(1_000)}


def test_keys_with_equal_shares_stay_in_one_lane():
    batch = batch_of_keys(EVEN)
    ((lane, part),) = LaneSplitter(Clock()).split(batch, {})
    assert (lane, part) == (0, batch)


def test_a_flood_is_diverted_within_its_first_call_and_no_other_key_is():
    lanes = lanes_by_key(list(LaneSplitter(Clock()).split(batch_of_keys(EVEN | {"k7": 1_000}), {})))
    assert len(lanes["k7"]) == 1
    assert 1 <= min(lanes["k7"]) <= LANES
    assert {lane for key, of_key in lanes.items() if key != "k7" for lane in of_key} == {0}


def test_each_event_is_in_one_part_and_a_lane_keeps_the_order():
    batch = batch_of_keys({"a": 3, None: 2} | EVEN | {"k7": 1_000})
    parts = list(LaneSplitter(Clock()).split(batch, {}))
    ids = [part.column(0).to_pylist() for _, part in parts]
    assert sorted(name for of_part in ids for name in of_part) == sorted(batch.column(0).to_pylist())
    assert all(of_part == sorted(of_part, key=lambda name: int(name[1:])) for of_part in ids)


def test_a_key_is_ordinary_again_some_time_after_its_flood():
    clock = Clock()
    splitter = LaneSplitter(clock)
    list(splitter.split(batch_of_keys(EVEN | {"k7": 1_000}), {}))
    clock.now = 8 * HALF_LIFE_SECONDS
    assert lanes_by_key(list(splitter.split(batch_of_keys(EVEN), {})))["k7"] == {0}


def test_events_without_a_key_are_ordinary_even_if_there_are_many():
    ((lane, _),) = LaneSplitter(Clock()).split(batch_of_keys(EVEN | {None: 9_000}), {})
    assert lane == 0
    ((lane, part),) = LaneSplitter(Clock()).split(batch_of_keys({None: 5}), {})
    assert (lane, part.num_rows) == (0, 5)


def test_an_overridden_key_has_a_lane_of_its_own():
    override = KeyWeight(weight=5.0, until=2.0, reason="a launch", by="ada")
    lanes = lanes_by_key(list(LaneSplitter(Clock()).split(batch_of_keys({"a": 5, "b": 5}), {"a": override})))
    assert lanes == {"a": {get_override_lane("a")}, "b": {0}}


@pytest.fixture
def control(control_server: Server) -> redis.Redis:
    return control_server.client()


def stored_lanes(nodes: dict[str, Server]) -> set[str]:
    return {
        block.block_id.partition("~")[0] if "~" in block.block_id else ""
        for server in nodes.values()
        for block in Segment(server.client(), "process").read("0-0", "+")
    }


@pytest.mark.parametrize("is_fair", [True, False])
def test_a_client_diverts_floods_of_fair_queues_only(control, control_server, plant_topology: Topology, nodes, is_fair):
    assert plant_topology.queue("process").kind == "jobs"
    if is_fair:
        fairness.enable(control, "process", FairnessSettings())
    with Client(control_server.url, "test", clock=lambda: NOW_US / 1e6) as client:
        published = client.publish("process", batch_of_keys(EVEN | {"k7": 1_000}))
    assert published.events == 10_990
    assert (len(stored_lanes(nodes)) == 2) == is_fair


def test_overrides_end_at_their_time_and_foreign_fields_are_ignored(control):
    fairness.enable(control, "process", FairnessSettings(ordinary_weight=7.0))
    fairness.set_weight(control, "process", "a", KeyWeight(weight=3.0, until=100.0, reason="test", by="ada"))
    control.hset(keys.FAIRNESS.build("process"), "key:b", "{")
    before = fairness.load_fairness(control, "process", 99.0)
    assert before is not None
    assert before.build_lane_weights().own == {get_override_lane("a"): 3.0}
    assert before.build_lane_weights().ordinary == 7.0
    after = fairness.load_fairness(control, "process", 100.0)
    assert after is not None
    assert not after.overrides
    fairness.end_weight(control, "process", "a")
    fairness.disable(control, "process")
    assert fairness.load_fairness(control, "process", 0.0) is None


def test_a_large_call_is_sampled_and_a_flood_in_it_is_still_diverted_at_once():
    splitter = LaneSplitter(Clock())
    batch = batch_of_keys(EVEN)
    assert [lane for lane, _ in splitter.split(batch, {})] == [0]
    lanes = lanes_by_key(list(splitter.split(batch_of_keys({"flood": 3_000} | EVEN), {})))
    assert lanes["flood"] <= set(range(1, LANES + 1))
    assert len(lanes["flood"]) == 1


@given(st.lists(st.text(max_size=20).filter(lambda name: "\0" not in name), min_size=1, max_size=40))
def test_the_group_of_a_key_depends_on_the_key_alone(names):
    together = compute_groups(pa.array(names, pa.string()))
    alone = [compute_groups(pa.array([name], pa.string()))[0] for name in names]
    sliced = compute_groups(pa.array(["x", *names], pa.string()).slice(1))
    assert together.tolist() == alone == sliced.tolist()
    assert ((together >= 0) & (together < GROUPS)).all()


def test_1_000_keys_have_few_groups_in_common():
    assert len(set(compute_groups(pa.array(list(EVEN), pa.string())).tolist())) > 940
