"""What the shipped configuration keeps of matches whose keys have more events than they need."""

import random

import numpy as np
import pyarrow as pa
import pytest

from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.shedding.law import LAW
from tests.workers.pipeline.matching.patterns import match_all, pattern_of
from workers.control.kinds.shedding import KIND
from workers.control.parts.pattern_yield import PatternYield
from workers.documents.pipeline import PatternStatus, SurplusEstimate
from workers.pipeline.matching.matcher import LabeledRows, Matcher
from workers.pipeline.matching.retained import KEYED
from workers.pipeline.matching.surplus import SurplusSample
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
            surplus=SurplusEstimate(matches_per_second=survivors.matches, kept_per_second=survivors.kept),
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
