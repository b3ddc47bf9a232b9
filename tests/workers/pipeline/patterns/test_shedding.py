"""What patterns do without: the same events in every replay, counted once, and what it costs, estimated."""

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.workers.pipeline.matching.patterns import match_all, pattern_of, rows_of
from tests.workers.pipeline.tiers.test_operators import Tier, batch_of
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.matching.matcher import LabeledRows
from workers.pipeline.patterns.graph import Graph, Operator
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.shedding import (
    CONTROL_GROUPS,
    MAX_TYPES,
    OTHERS,
    ROTATION_WINDOWS,
    UNITS,
    ShedDecisions,
    Shedder,
    interpolate_shares,
    limit_types,
    rank_texts,
)
from workers.pipeline.status.shed_record import recall_of

KEYS = "abcdefghijkl"
SHARES = st.sampled_from([0.0, 0.3, 0.5, 1.0])


def named(name: str, text: str) -> Pattern:
    return replace(pattern_of(text, within_us=12), name=name, emits=name)


AB, BA = named("ab", "SEQ(A; B)"), named("ba", "SEQ(B; A)")
TWICE = named("twice", "SEQ(ab; ab)")
GRAPH = Graph((Operator("low", "source", (AB, BA)), Operator("high", "source", (TWICE,))))
EVENTS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from("AB"), st.just(1.0), st.sampled_from(KEYS)), min_size=1, max_size=60
)


def kept_of(pattern: Pattern, rows: pa.RecordBatch, shedder: Shedder) -> pa.RecordBatch:
    return rows.filter(pa.array(~dropped_of(pattern, rows, shedder)))


def dropped_of(pattern: Pattern, rows: pa.RecordBatch, shedder: Shedder) -> np.ndarray:
    labeled = LabeledRows.build(pattern, rows, ())
    decisions = ShedDecisions(shedder, rows, rows.column("match_key"))
    return decisions.select_dropped(pattern, labeled.masks, labeled.labels)


def worked(control, events: list[tuple], shedder: Shedder, cuts: list[int]) -> Tier:
    """A tier that has worked the events, cut into results at these places."""
    control.flushall()
    tier = Tier(control, GRAPH)
    steered = {"shed": shedder.shares, "shed_by": shedder.by, "spared_keys_share": shedder.control_share}
    tier.controls = Controls().apply_changes(steered)
    everything, places = batch_of(events), sorted({0, *cuts, len(events)})
    for start, end in pairwise(place for place in places if place <= len(events)):
        tier.publish(everything.slice(start, end - start), events[start][0] - 1)
        if tier.plan(events[start][0] - 1):
            tier.work()
    tier.plan(1_000)
    tier.work(most=1)  # killed in the middle, and worked again
    tier.work()
    return tier


TABLES = st.dictionaries(st.sampled_from(["ab", "ba"]), st.dictionaries(st.sampled_from("AB"), st.floats(0, 1)))


@given(TABLES, TABLES, st.floats(1.0, 100.0))
def test_shares_lie_between_those_of_both_tables_and_reach_the_second_one_at_twice_the_rows(one, two, excess):
    table = interpolate_shares(one, two, excess)
    for pattern, types in table.items():
        for label, share in types.items():
            ends = [ends.get(pattern, {}).get(label, 0.0) for ends in (one, two)]
            assert min(ends) - 1e-6 <= share <= max(ends) + 1e-6
            if excess >= 2:
                assert share == pytest.approx(ends[1], abs=1e-6)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    EVENTS,
    st.lists(SHARES, min_size=4, max_size=4),
    st.sampled_from([0.0, 0.3]),
    st.sets(st.integers(1, 59)),
    st.sampled_from(UNITS),
)
def test_an_event_gets_the_same_shed_decision_however_it_comes_and_is_counted_once(
    control, events, shares, control_share, cuts, unit
):
    events = sorted(events, key=lambda event: event[0])
    ab, ba = dict(zip("AB", shares[:2], strict=True)), dict(zip("AB", shares[2:], strict=True))
    shedder = Shedder({"ab": ab, "ba": ba}, control_share, unit)
    tier = worked(control, events, shedder, list(cuts))
    rows = rows_of(events)
    for pattern in (AB, BA):
        kept = kept_of(pattern, rows, shedder)
        expected = {(key, tuple(event[1] for event in taken)) for key, taken in match_all(pattern, kept).list_emitted()}
        emitted = tier.emitted(pattern.name)
        assert len(emitted) == len(set(emitted))
        assert set(emitted) == expected
        counts = [each.patterns[pattern.name] for each in tier.counts if pattern.name in each.patterns]
        shed = sum(sum(each.shed.values()) for each in counts)
        before = sum(tier.shed.get(pattern.name, {}).values())
        given = sum(sum(each.types.values()) for each in counts)
        assert given == kept.num_rows
        assert given + shed + before == rows.num_rows


@given(st.lists(st.tuples(st.sampled_from("ABX"), st.sampled_from(KEYS)), max_size=50), SHARES)
def test_an_event_that_a_not_waits_for_is_never_dropped_and_a_strict_pattern_drops_none(events, share):
    rows = rows_of([(place, kind, 1.0, key) for place, (kind, key) in enumerate(events)])
    everything = Shedder({"p": {"A": share, "B": share, "X": 1.0}})
    forbids = replace(pattern_of("SEQ(A; NOT X; B)", within_us=12), name="p")
    kept = kept_of(forbids, rows, everything)
    assert kept.column("type").to_pylist().count("X") == [kind for kind, _ in events].count("X")
    strict = replace(pattern_of("SEQ(A; B)", within_us=12), name="p", contiguity="strict")
    assert kept_of(strict, rows, everything).equals(rows)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("column", ["time", "id"])
def test_a_row_that_a_rule_has_left_without_its_time_or_id_changes_no_decision_on_others(unit, column):
    rows = rows_of([(place, "AB"[place % 2], 1.0, KEYS[place % 12]) for place in range(40)])
    at = rows.schema.get_field_index(column)
    values = [None, *rows.column(column).to_pylist()[1:]]
    lacking = rows.set_column(at, column, pa.array(values, rows.schema.field(column).type))
    shedder = Shedder({"ab": {"A": 0.5, "B": 0.5}}, 0.0, unit)
    all_there, one_lacks = (dropped_of(AB, each, shedder) for each in (rows, lacking))
    assert all_there[1:].any() and (all_there[1:] == one_lacks[1:]).all()


def test_control_keys_lose_nothing_and_all_others_their_share():
    rows = rows_of([(place, "A", 1.0, chr(0x4E00 + place % 997)) for place in range(20_000)])
    shedder = Shedder({"ab": {"A": 0.4}}, 0.1)
    fates, dropped = ShedDecisions(shedder, rows, rows.column("match_key")), dropped_of(AB, rows, shedder)
    assert not dropped[fates.control].any()
    assert 0.06 < fates.control.mean() < 0.14
    assert abs(dropped[~fates.control].mean() - 0.4) < 0.02


def test_by_key_so_many_matches_are_left_as_is_kept_of_each_type_and_every_key_has_its_turn():
    keys = [chr(0x4E00 + number) for number in range(1_000)]
    enter_state = ROTATION_WINDOWS * AB.within_us
    events = [
        (enter_state * round_ + step, kind, 1.0, key)
        for round_ in range(8)
        for step, kind in enumerate("AB")
        for key in keys
    ]
    rows = rows_of(events)
    found = {}
    for unit in UNITS:
        kept = kept_of(AB, rows, Shedder({"ab": {"A": 0.6, "B": 0.6}}, 0.0, unit))
        found[unit] = [key for key, _ in match_all(AB, kept).list_emitted()]
    assert abs(len(found["key"]) / 8_000 - 0.4) < 0.02
    assert abs(len(found["event"]) / 8_000 - 0.16) < 0.02
    assert len(set(found["key"])) > 970, "in eight turns nearly every key is kept once"


def test_by_key_the_smallest_share_drops_keys_and_the_rest_of_a_share_drops_events_of_the_other_keys():
    keys = [chr(0x4E00 + number) for number in range(2_000)]
    rows = rows_of([(0, kind, 1.0, key) for key in keys for kind in "AAAAB"])
    kept = kept_of(AB, rows, Shedder({"ab": {"A": 0.8, "B": 0.6}}, 0.0, "key"))
    kinds, of_keys = kept.column("type").to_pylist(), kept.column("match_key").to_pylist()
    assert abs(kinds.count("B") / 2_000 - 0.4) < 0.03 and abs(kinds.count("A") / 8_000 - 0.2) < 0.02
    with_b = {key for key, kind in zip(of_keys, kinds, strict=True) if kind == "B"}
    assert set(of_keys) == with_b, "a key that is dropped is dropped as a whole"
    singly = kept_of(AB, rows, Shedder({"ab": {"A": 0.8, "B": 0.6}}, 0.0, "key", {"ab": True}))
    assert len(set(singly.column("match_key").to_pylist())) > 1.5 * len(with_b), "events of nearly all keys are left"


def test_ranks_are_even_over_ids_that_count_on_and_the_same_for_ever():
    ranks = rank_texts(pa.array([f"host-1:{number}" for number in range(20_000)]))
    for share in (0.1, 0.5, 0.9):
        assert abs((ranks < share).mean() - share) < 0.015
    # Neighbours are no pair: of two in a row, both are kept as often as chance says.
    assert abs(((ranks[1:] < 0.5) & (ranks[:-1] < 0.5)).mean() - 0.25) < 0.02
    assert rank_texts(pa.array(["host-17"]))[0] == 0.7297485780436546


def sampled(chance: random.Random, keys: int, recall: float, clump: int) -> tuple:
    """Spared matches and events by group, and the others', of keys that differ by up to `clump`."""
    control_matches, control_events, matches, events = [0] * CONTROL_GROUPS, [0] * CONTROL_GROUPS, 0, 0
    for _ in range(keys):
        size = chance.randint(1, clump)
        found = sum(chance.random() < 0.5 for _ in range(4 * size))
        if chance.random() < 0.05:
            group = chance.randrange(CONTROL_GROUPS)
            control_matches[group] += found
            control_events[group] += 8 * size
        else:
            matches += sum(chance.random() < recall for _ in range(found))
            events += 8 * size
    return control_matches, control_events, matches, events


@pytest.mark.parametrize(("recall", "clump"), [(0.2, 1), (0.6, 4), (0.95, 12)])
def test_the_interval_holds_the_true_recall_nearly_always(recall, clump):
    chance = random.Random(5)
    found = [recall_of(*sampled(chance, 600, recall, clump)) for _ in range(60)]
    held = [each.low <= recall <= (each.high if each.high is not None else 1.0) for each in found]
    assert sum(held) >= 53
    assert abs(sum(each.estimate for each in found) / len(found) - recall) < 0.06


def test_without_matches_of_control_keys_nothing_is_estimated():
    assert recall_of([0] * CONTROL_GROUPS, [9] * CONTROL_GROUPS, 40, 900) is None
    assert recall_of([0] * CONTROL_GROUPS, [0] * CONTROL_GROUPS, 40, 900) is None


COUNTS = st.dictionaries(st.text(max_size=4), st.integers(1, 1000), max_size=120)


@given(COUNTS, st.frozensets(st.text(max_size=2), max_size=10))
def test_named_types_and_the_most_frequent_are_counted_by_name_and_nothing_is_lost(types, named):
    found = limit_types(types, named)
    assert sum(found.values()) == sum(types.values())
    assert len(found) <= MAX_TYPES + len(named) + 1
    assert {each: found[each] for each in named if each in types} == {
        each: types[each] for each in named if each in types
    }
    emitted = [number for each, number in found.items() if each not in named and each != OTHERS]
    left = [number for each, number in types.items() if each not in found and each != OTHERS]
    assert not left or min(emitted) >= max(left)
