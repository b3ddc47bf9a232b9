"""What the shipped configuration keeps of matches whose keys have more events than they need."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.shedding.law import LAW
from tests.workers.pipeline.matching.patterns import match_all, pattern_of
from workers.control.kinds.shedding import KIND
from workers.control.parts.pattern_yield import PatternYield
from workers.documents.pipeline import KEPT_SHARES, PatternStatus, SurplusEstimate
from workers.pipeline.matching.matcher import LabeledRows, Matcher
from workers.pipeline.matching.retained import KEYED
from workers.pipeline.matching.surplus import SurplusSample, Survivors
from workers.pipeline.patterns.graph import compute_key_group
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.shedding import ShedDecisions, Shedder, count_by_label

SECOND_US = 1_000_000
WINDOW_US = 10 * SECOND_US


def rows_of(events: list[tuple[int, str, float, str]]) -> pa.RecordBatch:
    """(time, type, value, key) in the order of time."""
    rows = [
        {
            "id": f"{key}/{time}/{kind}",
            "time": time,
            "type": kind,
            "value": value,
            "source": key,
            "match_key": key,
            "group": compute_key_group(key),
        }
        for time, kind, value, key in sorted(events)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=KEYED)


def ten_per_match(keys: int, alone: bool = False) -> pa.RecordBatch:
    """For each B ten A: within its key, or of ten keys of which one has the B."""
    chance, events = random.Random(7), []
    for number in range(keys):
        begin_us = round(chance.uniform(0, 600) * SECOND_US)
        for place in range(10):
            key = f"key-{number}-{place}" if alone else f"key-{number}"
            events.append((begin_us + place * 100_000, "A", 1.0, key))
        events.append((begin_us + SECOND_US, "B", 2.0, f"key-{number}-0" if alone else f"key-{number}"))
    return rows_of(events)


def observe(pattern: Pattern, rows: pa.RecordBatch, batches: int = 60) -> PatternYield:
    """What the sensor learns of the pattern when all its events are searched, batch by batch."""
    matcher, learned = Matcher(pattern), PatternYield(pattern.name, None)
    state, size = {}, -(-rows.num_rows // batches)
    for start in range(0, rows.num_rows, size):
        labeled = LabeledRows.build(pattern, rows.slice(start, size), ())
        found, sample = matcher.take(labeled.rows, labeled.masks), SurplusSample(pattern, state)
        survivors = sample.add(labeled, np.ones(labeled.rows.num_rows, bool), found)
        sample.advance(labeled.rows.column("time")[-1].as_py())
        state = sample.save()
        status = PatternStatus(
            types={name: float(count) for name, count in count_by_label(labeled.labels, labeled.masks != 0).items()},
            out_per_second=float(len(found)),
            seconds=1.0,
            surplus=SurplusEstimate(
                matches_per_second=survivors.matches,
                matches_per_window=survivors.crowd / max(1, survivors.matches),
                kept_per_second=survivors.kept,
            ),
        )
        learned.add(status, 1.0)
    return learned


def shed_half(pattern: Pattern, learned: PatternYield, rows: pa.RecordBatch) -> dict[str, float]:
    """The table of the shipped parameters at half of the work."""
    labeled = LabeledRows.build(pattern, rows, ())
    rates = {name: float(count) for name, count in count_by_label(labeled.labels, labeled.masks != 0).items()}
    takes = learned.takes(rates)
    row = {
        "operator": "op",
        "name": "p",
        "expression": "SEQ(A; B)",
        "emits": "p",
        "seconds": 1 / sum(rates.values()),
        "takes": takes,
        "reduced": [
            {"takes": {name: takes[name] * share / survival for name, share in kept.items()}}
            for kept, survival in learned.list_reduced(rates)
        ],
    }
    observation = {"arrivals": {"op": rates}, "patterns": [row], "sinks": {"p": 1.0}}
    parameters = catalog.read_parameters(LAW, {**KIND.defaults.parameters, "utilisation_budget": 0.5})
    seen = catalog.read_observation(LAW, observation)
    _, decision = decide_next(LAW, parameters, start_state(LAW, parameters), seen)
    return decision.action["shed"]["p"]


def keep(pattern: Pattern, rows: pa.RecordBatch, table: dict[str, float]) -> pa.RecordBatch:
    labeled = LabeledRows.build(pattern, rows, ())
    decisions = ShedDecisions(Shedder({"p": table}, 0.0, "key"), rows, rows.column("match_key"))
    return rows.filter(pa.array(~decisions.select_dropped(pattern, labeled.masks, labeled.labels)))


@pytest.mark.parametrize("alone", [False, True])
def test_at_half_the_capacity_only_surplus_of_the_keys_is_dropped_while_there_is_some(alone):
    pattern, rows = pattern_of("SEQ(A; B)", within_us=WINDOW_US), ten_per_match(400, alone)
    table = shed_half(pattern, observe(pattern, rows), rows)
    kept = keep(pattern, rows, table)
    assert kept.num_rows / rows.num_rows == pytest.approx(0.5, abs=0.05)
    recall = len(match_all(pattern, kept)) / len(match_all(pattern, rows))
    if alone:
        assert table["A"] == table["B"], "an A of another key is of no use for a B"
        assert recall == pytest.approx(0.5, abs=0.08)
    else:
        assert recall >= 0.97


def test_of_one_type_only_the_events_of_a_surplus_symbol_are_dropped():
    define = {"low": 'type == "cpu" and value < 2', "high": 'type == "cpu" and value >= 2'}
    pattern = pattern_of("SEQ(low; high)", define, within_us=WINDOW_US)
    rows = ten_per_match(400)
    at = rows.schema.get_field_index("type")
    rows = rows.set_column(at, rows.schema.field(at), pa.array(["cpu"] * rows.num_rows))
    table = shed_half(pattern, observe(pattern, rows), rows)
    assert table == {"cpu[low]": pytest.approx(0.55, abs=0.02), "cpu[high]": 0.0}
    kept = keep(pattern, rows, table)
    assert len(match_all(pattern, kept)) >= 0.97 * len(match_all(pattern, rows))


def test_surplus_is_found_though_a_batch_has_a_small_part_of_a_window():
    pattern, rows = pattern_of("SEQ(A; B)", within_us=WINDOW_US), ten_per_match(50)
    found = observe(pattern, rows, batches=rows.num_rows).list_reduced({"A": 10.0, "B": 1.0})
    assert found and min(kept["A"] for kept, _ in found) <= 0.25


def test_where_keys_have_many_matches_in_a_window_events_are_counted_by_the_expression():
    pattern = pattern_of("SEQ(A; B)", within_us=WINDOW_US)
    chance = random.Random(3)
    events = [(round(chance.uniform(0, 60) * SECOND_US), kind, 1.0, "only") for kind in "AAB" for _ in range(900)]
    learned = observe(pattern, rows_of(events))
    assert learned.is_crowded and learned.knows_needs("SEQ(A; B)")
    assert not observe(pattern, ten_per_match(50)).is_crowded


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from("AB"), st.just(1.0), st.sampled_from("xyz")),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 60),
)
def test_survivors_are_shares_that_fall_with_what_is_kept_and_are_the_same_however_batches_are_cut(events, cut):
    pattern, rows = pattern_of("SEQ(A; B)", within_us=10), rows_of(events)
    whole, parts = survivors_of(pattern, [rows]), survivors_of(pattern, [rows.slice(0, cut), rows.slice(cut)])
    assert whole.matches == parts.matches == len(match_all(pattern, rows))
    for counts in whole.kept.values():
        assert all(0 <= after <= before <= whole.matches for before, after in pairwise(counts))
        for share, count in zip(KEPT_SHARES, counts, strict=True):
            assert count >= share * whole.matches * (1 - 1e-9)


def survivors_of(pattern: Pattern, batches: list[pa.RecordBatch]) -> Survivors:
    matcher, sums, state = Matcher(pattern), Survivors(), {}
    for batch in batches:
        labeled = LabeledRows.build(pattern, batch, ())
        sample = SurplusSample(pattern, state)
        found = matcher.take(batch, labeled.masks)
        sums.add(sample.add(labeled, np.ones(batch.num_rows, bool), found))
        state = sample.save()
    return sums
