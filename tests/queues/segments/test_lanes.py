"""Lanes of a fair queue on a real server."""

from collections import Counter

import pytest
import redis

from queues import keys
from queues.events.block import BlockIds, EncodedBlock, cut
from queues.fairness import LaneWeights
from queues.segments.segment import MAX_DIVERTED_EVENTS, Segment
from tests.queues.samples import age_claims, batch_of, blocks_of

MINUTE = 60.0
WEIGHTS = LaneWeights(ordinary=10.0)


@pytest.fixture
def segment(node: redis.Redis) -> Segment:
    return Segment(node, "alert")


def blocks_of_lane(lane: int, blocks: int, per_block: int = 4) -> list[EncodedBlock]:
    return [
        EncodedBlock(f"{lane}~{block.block_id}", block.events, block.newest_time_us, block.data)
        for block in blocks_of(blocks * per_block, per_block)
    ]


def lane_of(block_id: str) -> int:
    return int(block_id.partition("~")[0]) if "~" in block_id else 0


def work(segment: Segment, claims: int, events: int, weights: LaneWeights | None = WEIGHTS) -> Counter[int]:
    """Claim and acknowledge; return the events by lane."""
    done: Counter[int] = Counter()
    for _ in range(claims):
        claimed = segment.claim("w1", events, MINUTE, weights=weights)
        for block in claimed:
            done[lane_of(block.block_id)] += block.events
        segment.acknowledge([block.entry_id for block in claimed])
    return done


def test_ordinary_events_overtake_a_flood_that_was_there_before(segment):
    segment.publish(blocks_of_lane(3, 100))
    segment.publish(blocks_of(40))
    assert work(segment, 3, 16)[0] == 40


def test_a_flood_gets_the_share_of_one_key_while_others_wait(segment):
    segment.publish(blocks_of_lane(3, 200))
    segment.publish(blocks_of(800))
    done = work(segment, 44, 10)
    assert done[3] == pytest.approx(sum(done.values()) / 11, abs=8)


def test_a_flood_over_all_lanes_gets_at_most_the_share_of_two_keys(segment):
    for lane in range(1, 17):
        segment.publish(blocks_of_lane(lane, 30))
    segment.publish(blocks_of(4_000))
    done = work(segment, 200, 20)
    diverted = sum(done.values()) - done[0]
    assert done[0] > 0
    # Each lane may be ahead by a block.
    assert diverted <= 2 / 12 * sum(done.values()) + 16 * 4


def test_a_lane_with_a_weight_of_its_own_gets_more(segment):
    segment.publish(blocks_of_lane(20, 200))
    segment.publish(blocks_of(800))
    done = work(segment, 30, 20, LaneWeights(10.0, {20: 10.0}))
    assert done[20] == pytest.approx(done[0], abs=12)


def test_large_claims_keep_to_a_large_weight_too(segment):
    segment.publish(blocks_of_lane(20, 20, 512))
    segment.publish(cut(batch_of(20 * 512), BlockIds()))
    done = work(segment, 2, 8 * 512, LaneWeights(10.0, {20: 10.0}))
    assert done[20] == pytest.approx(done[0], abs=512)


def test_a_flood_gets_all_workers_while_nothing_else_waits(segment):
    segment.publish(blocks_of_lane(3, 200))
    assert work(segment, 20, 40) == {3: 800}


def test_a_claim_of_diverted_events_alone_is_short(segment):
    segment.publish(blocks_of_lane(3, 10, MAX_DIVERTED_EVENTS // 4))
    assert sum(block.events for block in segment.claim("w1", 16_384, MINUTE, weights=WEIGHTS)) == MAX_DIVERTED_EVENTS


def test_no_event_is_lost_or_given_out_twice_and_each_is_at_its_first_try(segment):
    for lane in (1, 2, 3):
        segment.publish(blocks_of_lane(lane, 20))
    segment.publish(blocks_of(80))
    claimed = []
    while more := segment.claim("w1", 24, MINUTE, weights=WEIGHTS):
        claimed += more
    assert len({block.entry_id for block in claimed}) == len(claimed) == 80
    assert {block.tries for block in claimed} == {1}
    assert segment.acknowledge([block.entry_id for block in claimed]).events == 320
    assert segment.measure()["length_blocks"] == segment.measure()["pending_blocks"] == 0


def test_parked_blocks_are_not_taken_from_a_dead_worker(segment):
    segment.publish(blocks_of_lane(3, 20))
    segment.publish(blocks_of(4))
    (first,) = segment.claim("w1", 1, MINUTE, weights=WEIGHTS)
    assert lane_of(first.block_id) == 0
    assert segment.measure()["pending_blocks"] == 1
    age_claims(segment, "w1", [first], 2 * MINUTE)
    parked = segment.node.xpending_range(segment.stream, "workers", "-", "+", 100, "lanes")
    segment.node.xclaim(
        segment.stream, "workers", "lanes", 0, [row["message_id"] for row in parked], idle=120_000, justid=True
    )
    again = segment.claim("w2", 1, MINUTE, weights=WEIGHTS)
    assert (again[0].entry_id, again[0].tries) == (first.entry_id, 2)


def test_parked_blocks_are_given_out_after_fairness_has_ended(segment):
    segment.publish(blocks_of_lane(3, 20))
    segment.publish(blocks_of(4))
    segment.claim("w1", 1, MINUTE, weights=WEIGHTS)
    assert sum(work(segment, 30, 16, None).values()) == 80


def test_parked_blocks_are_transferred_too(segment):
    segment.publish(blocks_of_lane(3, 20))
    segment.publish(blocks_of(4))
    segment.claim("w1", 1, MINUTE, weights=WEIGHTS)
    departing = segment.depart({"n2": 1}, 100, 2**20)
    assert sum(block.events for block in departing) == 80
    assert {lane_of(block.block_id) for block in departing} == {3}
    assert not segment.claim("w1", 1_000, MINUTE, weights=WEIGHTS)


def test_large_blocks_of_a_lane_leave_room_for_the_rest_of_a_claim(segment):
    segment.publish(cut(batch_of(512), lambda: "5~" + "0" * 32))
    segment.publish(blocks_of(40))
    done = work(segment, 2, 40)
    assert done[0] == 40


def test_many_diverted_blocks_before_the_ordinary_ones_leave_no_claim_empty(segment):
    segment.publish(blocks_of_lane(3, 1_200, 1))
    segment.publish(blocks_of(4))
    done = work(segment, 4, 4)
    assert done[0] == 4
    assert done[3] > 0


def test_a_fair_queue_without_heavy_keys_is_claimed_in_one_call(segment, monkeypatch):
    segment.publish(blocks_of(40))
    names = []
    run = segment.run_script
    monkeypatch.setattr(segment, "run_script", lambda name, *rest: names.append(name) or run(name, *rest))
    assert sum(block.events for block in segment.claim("w1", 40, MINUTE, weights=WEIGHTS)) == 40
    assert names == ["claim_lanes"]


def test_due_retries_of_a_fair_queue_come_first(segment):
    segment.publish(blocks_of(4))
    (first,) = segment.claim("w1", 4, MINUTE, weights=WEIGHTS)
    assert segment.retry(first, "w1", 0.0)
    segment.publish(blocks_of(8))
    again = segment.claim("w2", 8, MINUTE, weights=WEIGHTS)
    assert (again[0].block_id, again[0].tries) == (first.block_id, 2)
    assert sum(block.events for block in again) == 8


def test_parked_blocks_that_are_gone_hold_up_no_lane(segment):
    segment.publish(blocks_of_lane(3, 4))
    segment.publish(blocks_of_lane(5, 4))
    segment.publish(blocks_of(4))
    segment.claim("w1", 1, MINUTE, weights=WEIGHTS)
    lanes = segment.node.zrange(keys.LANES.build("alert"), 0, -1, withscores=True)
    segment.node.xdel(segment.stream, *[entry_id for entry_id, lane in lanes if lane == 3])
    assert work(segment, 10, 16) == {5: 16}
    assert segment.node.zcard(keys.LANES.build("alert")) == 0
