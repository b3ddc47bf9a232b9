"""A producer with many or long keys can't fill the control server with open matches."""

import logging
import random
import string
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.workers.pipeline.matching.patterns import pattern_of
from tests.workers.pipeline.tiers.test_operators import Tier
from workers.pipeline.patterns.graph import Graph, Operator
from workers.pipeline.status.dropped_matches import DroppedMatchWarnings
from workers.pipeline.tiers import state
from workers.pipeline.tiers.finished_batch import OperatorCount, PatternCount
from workers.pipeline.tiers.state import OperatorMemory

DAY_US = 86_400_000_000
# One that is searched over whole batches, one event by event, one that ends with the window.
ATTACKED = {
    "a plain sequence": pattern_of("SEQ(A; B)", within_us=DAY_US),
    "a repetition": pattern_of("SEQ(A+; B)", within_us=DAY_US),
    "an absence": pattern_of("SEQ(A; NOT B)", within_us=DAY_US),
    "a conjunction": pattern_of("AND(A, B)", within_us=DAY_US),
}
# An empty group has a header of its own.
OVERHEAD_BYTES = 20_000


def rows_with_keys(keys: list[str], kind: str, first_us: int) -> pa.RecordBatch:
    count = len(keys)
    return pa.RecordBatch.from_pydict(
        {
            "time": pa.array(range(first_us, first_us + count), pa.int64()),
            "id": [f"{kind}{first_us + place}" for place in range(count)],
            "type": [kind] * count,
            "value": [1.0] * count,
            "source": keys,
            "key": ["k"] * count,
        }
    )


def state_bytes(tier: Tier) -> int:
    return sum(len(value) for value in tier.control.hgetall(tier.store._state).values())


@pytest.mark.parametrize("pattern", ATTACKED.values(), ids=ATTACKED)
def test_a_flood_of_long_keys_stays_within_the_limit_and_is_counted(pattern, control, monkeypatch):
    limit = 256 * 1024
    monkeypatch.setattr(state, "MAX_STATE_BYTES", limit)
    chance = random.Random(7)
    tier = Tier(control, Graph((Operator("low", "source", (replace(pattern, name="p", emits="p"),)),)))
    for batch in range(4):
        keys = ["".join(chance.choices(string.printable, k=500)) for _ in range(500)]
        tier.publish(rows_with_keys(keys, "A", 1_000 * batch), None)
        tier.plan(1_000 * batch + 999)
        tier.work(tasks=1)
    assert state_bytes(tier) <= limit + OVERHEAD_BYTES
    assert sum(count.patterns["p"].forgotten_bytes for count in tier.counts if "p" in count.patterns) > limit


def test_after_a_flood_matches_are_found_as_before(control, monkeypatch):
    monkeypatch.setattr(state, "MAX_STATE_BYTES", 64 * 2_000)
    pattern = replace(ATTACKED["a plain sequence"], name="p", emits="p")
    tier = Tier(control, Graph((Operator("low", "source", (pattern,)),)))
    chance = random.Random(7)
    flood = ["".join(chance.choices(string.printable, k=500)) for _ in range(900)]
    for number, (keys, kind) in enumerate([(flood, "A"), (["x"], "A"), (["x"], "B")]):
        tier.publish(rows_with_keys(keys, kind, 1_000 * number), None)
        tier.plan(1_000 * number + 999)
        tier.work(tasks=1)
    assert [key for key, _ in tier.emitted("p")] == ["x"]


def test_the_largest_pattern_of_a_group_goes_first_and_the_others_stay():
    memory = OperatorMemory(max_place_bytes=150)
    for signature, size in {"small": 40, "large": 500, "middle": 100}.items():
        memory.keep(signature, {3: b"x" * size}, {})
    written, _ = memory.write_places(["low/3"])["low/3"]
    assert set(OperatorMemory.build({"low/3": written}).parts) == {"small", "middle"}
    assert memory.forgotten_bytes == {"large": 500}


def test_what_fits_is_kept_to_the_last_byte():
    memory = OperatorMemory(max_place_bytes=140)
    memory.keep("a", {3: b"x" * 40}, {})
    memory.keep("b", {3: b"x" * 100}, {})
    written, _ = memory.write_places(["low/3"])["low/3"]
    assert set(OperatorMemory.build({"low/3": written}).parts) == {"a", "b"}
    assert memory.forgotten_bytes == {}


def test_a_pattern_that_drops_matches_is_logged_once_a_minute(caplog):
    warnings = DroppedMatchWarnings(lambda: 100.0)
    count = OperatorCount("low", patterns={"p": PatternCount(forgotten_bytes=5_000_000)})
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            warnings.warn({"low": count})
    assert [record.getMessage()[:49] for record in caplog.records] == [
        "Pattern p dropped open matches of 4.8 MiB: it has"
    ]
