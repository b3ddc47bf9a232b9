"""A producer that invents a type for each event makes no job, status or snapshot as large as its events."""

import json
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.workers.pipeline.rules.conftest import spark as spark
from workers.batch.jobs.spark import statistics, training
from workers.batch.jobs.spark.events import group_rare_types
from workers.history.event_archive import Partition
from workers.pipeline.patterns.shedding import MAX_NAME, MAX_TYPES, OTHERS, limit_types

DAY = "2026-11-19"
BEGIN = datetime(2026, 11, 19, tzinfo=UTC)
FREQUENT = {"cpu": 40, "disk": 30}


def events(spark: SparkSession, invented: int):
    types = [each for each, count in FREQUENT.items() for _ in range(count)] + [None] * 20
    types += [f"invented {number}" for number in range(invented)]
    rows = {"time": [BEGIN] * len(types), "type": types, "id": [f"e{n}" for n in range(len(types))]}
    table = pa.table(
        {**rows, "value": pa.array([1.0] * len(types))},
        schema=pa.schema(
            [("time", pa.timestamp("us", "UTC")), ("type", pa.string()), ("id", pa.string()), ("value", pa.float64())]
        ),
    )
    return spark.createDataFrame(table)


def test_the_rarest_types_are_one_and_no_event_is_lost(spark):
    found = Counter(row["type"] for row in group_rare_types(events(spark, 500), 3).collect())
    assert found == {**FREQUENT, "": 20, OTHERS: 500}


@pytest.mark.parametrize("invented", [500, 2_000])
def test_a_training_set_has_as_many_rows_whatever_types_are_invented(spark, invented, monkeypatch):
    monkeypatch.setattr(training, "MAX_TYPES", 3)
    counted = training._count_events(events(spark, invented), 3_600)
    table = training.build_window_table(counted, DAY, 3_600, 2, 3)
    assert set(table["type"].to_pylist()) == {"", *FREQUENT, OTHERS}
    assert table.num_rows == 24 * 4


def test_statistics_have_a_row_for_the_rarest_types_together(spark, monkeypatch):
    monkeypatch.setattr(statistics, "MAX_TYPES", 3)
    slices, quantiles = statistics._measure(events(spark, 500), 590)
    rows = statistics.describe(Partition(DAY, "q"), slices, quantiles, {}).to_pylist()
    assert {row["type"]: row["events"] for row in rows} == {**FREQUENT, "": 20, OTHERS: 500}


def test_counts_by_type_are_small_whatever_types_are_invented():
    types = {f"{number} " + "x" * 990: 1 for number in range(10_000)}
    found = limit_types(types, named={"cpu"})
    assert sum(found.values()) == 10_000
    assert len(json.dumps(found)) < (MAX_TYPES + 1) * (MAX_NAME + 20)


def test_a_type_that_a_pattern_names_keeps_its_name_however_long():
    name = "n" * 200
    assert limit_types({name: 3, "x" * 200: 2}, named={name}) == {name: 3, f"{'x' * (MAX_NAME - 1)}…": 2}


def test_types_that_begin_alike_are_counted_together():
    assert limit_types({"x" * 200 + "a": 3, "x" * 200 + "b": 2}) == {f"{'x' * (MAX_NAME - 1)}…": 5}
