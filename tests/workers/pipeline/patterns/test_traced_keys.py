"""The recall of matches that two operators find, against a run in which nothing is shed."""

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.workers.pipeline.matching.patterns import pattern_of
from tests.workers.pipeline.tiers.test_operators import Tier
from workers.documents.pipeline import RecallEstimate
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.patterns.graph import Graph, Operator
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.shedding import (
    ROTATION_WINDOWS,
    UNITS,
    KeyRanks,
    Shedder,
    compute_periods,
    find_chain_starts,
)
from workers.pipeline.status.shed_record import ShedRecord

USERS, SPAN_US = 2_000, 2_000
CONTROL_SHARE = 0.3  # large, so that chance says little


def named(name: str, text: str, key: str, within_us: int) -> Pattern:
    return replace(pattern_of(text, within_us=within_us), name=name, emits=name, key=key)


def graph_of(last_key: str) -> Graph:
    """Pairs of each user, of which the last operator wants two: it has them by another column."""
    pair, twice = named("pair", "SEQ(A; B)", "key", 300), named("twice", "SEQ(pair; pair)", last_key, SPAN_US)
    return Graph((Operator("users", "key", (pair,)), Operator("last", last_key, (twice,))))


def events_of(seed: int, apart_us: int = 200) -> pa.RecordBatch:
    """Users of one to four pairs, of sources that say nothing of them."""
    chance, found = random.Random(seed), []
    for user in range(USERS):
        for _ in range(chance.randint(1, 4)):
            begin_us = chance.randrange(SPAN_US - 200)
            found += [(begin_us, "A", f"user-{user}"), (begin_us + chance.randrange(1, apart_us), "B", f"user-{user}")]
    times, kinds, users = zip(*sorted(found), strict=True)
    columns = {
        "time": pa.array(times, pa.int64()),
        "id": [f"e{number}" for number in range(len(times))],
        "type": kinds,
        "source": [f"host-{chance.randrange(9)}" for _ in times],
        "key": users,
    }
    return pa.RecordBatch.from_pydict({**columns, "value": pa.nulls(len(times), pa.float64())})


def worked(control, graph: Graph, rows: pa.RecordBatch, **steered) -> tuple[int, RecallEstimate | None]:
    """Whole matches found of others than control keys, and their estimated recall."""
    control.flushall()
    tier, record = Tier(control, graph, most_rows=10**6), ShedRecord({}, find_chain_starts(graph))
    tier.controls = Controls().apply_changes({"spared_keys_share": CONTROL_SHARE, **steered})
    middle = rows.num_rows // 2
    for part in (rows.slice(0, middle), rows.slice(middle)):
        settled_us = part.column("time")[0].as_py() - 1
        tier.publish(part, settled_us)
        if tier.plan(settled_us):
            tier.work()
    tier.plan(2 * SPAN_US)
    tier.work()
    record.record_replica(0.0, tier.shed)
    for count in tier.counts:
        record.record_operators(0.0, [count], sheds=True)
    found = pa.array([key for key, _ in tier.emitted("twice")], pa.string())
    control_keys = KeyRanks(Shedder(control_share=CONTROL_SHARE), found).control
    return int((~control_keys).sum()), record.recall("twice")


def of_whole_keys(control, graph: Graph, rows: pa.RecordBatch, share: float) -> float:
    """How many of the matches are found where this share of the keys is dropped."""
    everything, _ = worked(control, graph, rows)
    found, _ = worked(control, graph, rows, shed={"pair": {"A": share, "B": share}}, shed_by="key")
    return found / everything


def test_by_key_the_matches_of_the_last_operator_are_found_whole_however_short_the_windows_before(control):
    """Pairs come within 20 µs; the last operator waits for the second for 2,000."""
    pair, twice = named("pair", "SEQ(A; B)", "key", 20), named("twice", "SEQ(pair; pair)", "source", SPAN_US)
    graph = Graph((Operator("users", "key", (pair,)), Operator("last", "source", (twice,))))
    assert {name: each.lasts_us for name, each in compute_periods(graph).items()} == {
        "pair": ROTATION_WINDOWS * SPAN_US,
        "twice": ROTATION_WINDOWS * SPAN_US,
    }
    # Were both pairs of a match decided on by themselves, a quarter would be left.
    assert of_whole_keys(control, graph, events_of(5, apart_us=20), 0.5) > 0.45


def test_what_two_operators_drop_of_the_same_keys_has_nothing_to_do_with_one_another(control):
    rows, graph = events_of(6), graph_of("source")
    everything, _ = worked(control, graph, rows)
    shed = {"pair": {"A": 0.5, "B": 0.5}, "twice": {"pair": 0.5}}
    found, recall = worked(control, graph, rows, shed=shed, shed_by="key")
    assert recall is not None and 0.2 < found / everything < 0.3
    assert abs(recall.estimate - found / everything) < 0.05


def test_recall_counts_the_control_keys_of_a_pattern_that_reads_the_event_before_like_those_of_others(control):
    """Nothing of such a pattern is shed; of the pairs that its matches go together with there is."""
    pair = named("pair", "SEQ(A; B)", "key", 300)
    close = pattern_of("SEQ(R)", {"R": "type == 'B' and time > prev(time)"}, within_us=300)
    close = replace(close, name="close", emits="close", key="key")
    both = named("twice", "AND(pair, close)", "source", SPAN_US)
    graph = Graph((Operator("users", "key", (pair, close)), Operator("last", "source", (both,))))
    assert find_chain_starts(graph)["twice"] == {"pair", "close"}
    rows = events_of(7)
    everything, _ = worked(control, graph, rows)
    found, recall = worked(control, graph, rows, shed={"pair": {"A": 0.6, "B": 0.6}}, shed_by="key")
    true = found / everything
    assert recall is not None and abs(recall.estimate - true) < 0.05, (recall, true)


@pytest.mark.parametrize("unit", UNITS)
def test_the_recall_of_the_last_operator_is_that_of_whole_matches_though_it_reads_its_keys_elsewhere(control, unit):
    graph, within = graph_of("source"), []
    for seed in (1, 2, 3):
        rows = events_of(seed)
        everything, _ = worked(control, graph, rows)
        found, recall = worked(control, graph, rows, shed={"pair": {"A": 0.6, "B": 0.6}}, shed_by=unit)
        true = found / everything
        assert recall is not None and abs(recall.estimate - true) < 0.05, (recall, true)
        within.append(recall.low <= true <= (recall.high or 1.0))
    assert sum(within) >= 2


def test_where_complex_events_of_all_keys_come_together_nothing_is_estimated(control):
    graph = graph_of("type")
    assert find_chain_starts(graph) == {"pair": {"pair"}, "twice": set()}
    found, recall = worked(control, graph, events_of(1), shed={"pair": {"A": 0.6}})
    assert found and recall is None


def test_a_chain_is_traced_to_all_its_beginnings_through_every_operator_that_keeps_its_keys():
    a, b = named("a", "SEQ(A)", "key", 10), named("b", "SEQ(B)", "user", 10)
    both, once_more = named("both", "AND(a, b)", "source", 10), named("more", "SEQ(both; C)", "source", 10)
    lost = named("lost", "SEQ(both{3})", "key", 10)
    behind = named("behind", "SEQ(lost)", "source", 10)
    graph = Graph(tuple(Operator(each.name, str(each.key), (each,)) for each in (behind, a, b, lost, once_more, both)))
    assert find_chain_starts(graph) == {
        "a": {"a"},
        "b": {"b"},
        "both": {"a", "b"},
        "more": {"a", "b"},
        "lost": set(),
        "behind": set(),
    }


def test_a_condition_that_names_no_type_takes_the_complex_events_of_its_operator_as_well():
    pair, twice = named("pair", "SEQ(A; B)", "key", 20), named("twice", "SEQ(pair; pair)", "source", 20)
    hot = pattern_of("SEQ(H)", {"H": "value > 80"}, within_us=SPAN_US)
    hot = replace(hot, name="hot", emits="hot", key="source")
    graph = Graph((Operator("users", "key", (pair,)), Operator("last", "source", (twice, hot))))
    assert find_chain_starts(graph)["hot"] == {"pair"}
    assert compute_periods(graph)["pair"].lasts_us == ROTATION_WINDOWS * SPAN_US
