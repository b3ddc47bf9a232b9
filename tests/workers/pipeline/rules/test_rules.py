"""Declared rules, run by a real Spark."""

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as sql

from common.errors import BadInput
from queues.publishing.client import Client
from workers.pipeline.declaration.declaration import build_application, parse_application_text, read_application
from workers.pipeline.dispatch.result_queue import Blob, Result, ResultQueue
from workers.pipeline.events.containers import Range
from workers.pipeline.events.layout import Attribute, Layout, get_criterion_column
from workers.pipeline.matching.matcher import check_conditions
from workers.pipeline.patterns import predicate
from workers.pipeline.patterns.shedding import Shedder
from workers.pipeline.rules.reference import ReferenceTable
from workers.pipeline.rules.rule_sql import (
    add_address_columns,
    apply_rules,
    build_rule_counts,
    check_rules,
    create_empty_events,
)
from workers.pipeline.rules.rules import ENGINES, Cleanse, Enrich, Filter, Project, Sample, list_named_columns
from workers.pipeline.runtime.application import SHIPPED
from workers.pipeline.tiers.event_source import BatchAssignment
from workers.pipeline.tiers.intra_event import ReplicaRules, RulePlans

PLANNED = """
name: planned
queues: [telemetry]
sink: alert
criteria: {least: 0}
rules:
  - {name: noise, discard: "type = 'N'"}
  - {name: large, keep: "coalesce(value, 5) >= :least and type != 'B'"}
patterns:
  - {name: a, pattern: SEQ(A), key: source, within_seconds: 1}
"""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.thorough,  # Spark takes half a minute to start; tests/plant sees rules at work
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def no_events(spark):
    return create_empty_events(spark, Layout(attributes=(Attribute("address", "text"),)))


def events(spark, *addresses: str | None):
    places = ", ".join("(?, cast(? as string))" for _ in addresses)
    values = [cell for place, address in enumerate(addresses) for cell in (f"e{place}", address)]
    return spark.sql(
        f"select id, timestamp_seconds(1) time, 'load' type, 's' source, 'load1' key, 3.0D value, address "
        f"from values {places} as t(id, address)",
        args=values,
    )


def test_an_attribute_of_64_bits_is_exact_in_rules_and_stays_so_for_patterns(spark):
    layout = Layout(("id",), (Attribute("user", "integer"),))
    rows = pa.RecordBatch.from_pylist(
        [{"id": "a", "user": 2**63 - 1}, {"id": "b", "user": 2**63 - 2}, {"id": "c"}], layout.schema
    )
    given = spark.createDataFrame(rows.to_pylist(), layout.sql)
    ruled = apply_rules(given, (Filter("last", "user > 9223372036854775806"),), {}).events
    (found,) = ruled.select("id", "user").toArrow().to_batches()
    assert found.to_pylist() == [{"id": "a", "user": 2**63 - 1}]
    mask = predicate.parse("user == 9223372036854775807", "define.A").mask({"user": found.column("user")}, 1)
    assert mask.to_pylist() == [True]


def test_the_shipped_rules_discard_the_test_subnet_and_name_the_hosts(spark):
    rules = read_application(SHIPPED).rules
    given = events(spark, "92.126.10.7", "92.126.11.5", "92.126.11.9", "10.1.2.3", "no address", None)
    ruled = apply_rules(given, rules, {})
    found = {row["id"]: (row["host_name"], row["host_type"]) for row in ruled.events.collect()}
    assert found == {
        "e1": ("web-1", "production"),
        "e2": ("production server", "production"),
        "e3": ("this plant", "production"),
        "e4": (None, None),
        "e5": (None, None),
    }


def test_an_address_is_a_number_where_it_is_one(spark):
    wrong = ("256.1.1.1", "1.2.3", "1.2.3.4.5", "-1.2.3.4", "1.2.3.x", "", None)
    given = events(spark, "0.0.0.0", "1.2.3.4", "255.255.255.255", *wrong)
    found = {row["id"]: row["_address"] for row in add_address_columns(given, "address").collect()}
    assert [found[f"e{place}"] for place in range(3)] == [0, 16_909_060, 2**32 - 1]
    assert [found[f"e{place}"] for place in range(3, 10)] == [None] * len(wrong)


def test_what_passes_each_rule_is_counted(spark):
    rules = (Filter("first", "id != 'e0'"), Project("between", {"x": "1"}), Filter("last", "id = 'e1'", True))
    ruled = apply_rules(events(spark, None, None, None, None), rules, {})
    for _ in range(2):  # a plan is run for batch after batch: each is counted on its own
        kept = len(ruled.events.collect())
        counted = build_rule_counts(rules, ruled.count_passed(ruled.events), 4, kept)
        counts = [(count["name"], count["in"], count["out"]) for count in counted]
        assert counts == [("first", 4, 3), ("between", 3, 3), ("last", 3, 2)]


def test_a_value_that_cannot_be_cast_is_unknown_and_ends_nothing(spark):
    rules = (Project("p", {"number": "cast(id as int)"}), Filter("f", "number > 1", discard=True))
    assert apply_rules(events(spark, None), rules, {}).events.count() == 1


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ((Filter("f", "nobody > 1"),), r"rules\[0\]: \(f\).*nobody"),
        ((Project("p", {"x": "1 +"}),), r"rules\[0\]: \(p\)"),
        ((Project("p", drop=("value",)),), r"patterns.*'value'"),
    ],
)
def test_a_rule_spark_does_not_understand_is_named(no_events, rules, says):
    with pytest.raises(BadInput, match=re.compile(says, re.DOTALL)):
        check_rules(no_events, rules, frozenset({"source"}), {})


@pytest.mark.parametrize(
    ("computed", "says"),
    [
        ({"time": "unix_seconds(time)"}, "must make column time a timestamp, not a bigint"),
        ({"source": "value"}, "must make column source a string, not a double"),
        ({"value": "type"}, "must make column value a number, not a string"),
    ],
)
def test_a_rule_that_makes_another_type_of_what_every_event_has_is_refused(no_events, computed, says):
    with pytest.raises(BadInput, match=says):
        check_rules(no_events, (Project("p", computed),), frozenset(), {})


@pytest.mark.parametrize("condition", ["value > 5", 'speed = "x"', "value > prev(value)", "time > 5"])
def test_a_condition_that_fits_its_columns_is_taken(no_events, condition):
    check_conditions(conditioned(condition), kinds_with_speed(no_events))


@pytest.mark.parametrize("condition", ["speed > 5", "speed > prev(value)", "value = type"])
def test_a_condition_that_does_not_fit_its_columns_is_refused_before_any_event_comes(no_events, condition):
    with pytest.raises(BadInput) as refused:
        check_conditions(conditioned(condition), kinds_with_speed(no_events))
    assert refused.value.field == "p.define.A"


def kinds_with_speed(no_events):
    return check_rules(no_events, (Project("p", {"speed": "type"}),), frozenset(), {})


def conditioned(condition: str):
    pattern = {"name": "p", "pattern": "SEQ(A)", "define": {"A": condition}, "key": "source"}
    rules = [{"name": "p", "project": {"compute": {"speed": "type"}}}]
    document = {"name": "a", "queues": ["telemetry"], "sink": "alert", "rules": rules}
    return build_application({**document, "patterns": [{**pattern, "within_seconds": 9}]}, Path()).patterns


def test_the_shipped_application_is_understood(no_events):
    application = read_application(SHIPPED)
    check_rules(no_events, application.rules, application.graph.columns, {})


def test_a_sample_keeps_its_share_and_the_same_events_each_time(spark):
    given = spark.range(20_000).selectExpr("cast(id as string) id", "1.0D value")
    kept = [apply_rules(given, (Sample("s", 0.25),), {}).events.collect() for _ in range(2)]
    assert kept[0] == kept[1]
    assert 4_500 < len(kept[0]) < 5_500


def test_cleansing_replaces_values_and_lets_go_of_events_without_a_clean_one(spark):
    given = spark.sql("select * from values ('a', 5.0D), ('b', -1.0D), ('c', cast(null as double)) as t(id, value)")
    rule = Cleanse("c", {"value": "case when value >= 0 then least(value, 3) end"})
    rows = apply_rules(given, (rule,), {}).events.collect()
    assert [(row["id"], row["value"]) for row in rows] == [("a", 3.0)]


def test_a_criterion_stands_for_its_current_value_but_not_within_a_text(spark):
    rule = Filter("f", "value > :slow and id != ':slow'")
    events = spark.sql("select * from values ('a', 5.0D), ('b', 1.0D) as t(id, value)")
    for slow, kept in ((2.0, ["a"]), (0.5, ["a", "b"])):
        given = events.withColumn(get_criterion_column("slow"), sql.lit(slow))
        found = apply_rules(given, (rule,), {"slow"}).events.collect()
        assert [row["id"] for row in found] == kept
    with pytest.raises(BadInput, match=":slow is not a declared criterion"):
        apply_rules(events, (rule,), {})


def test_a_table_that_changes_is_read_again_and_a_wrong_one_leaves_the_old_in_use(spark, tmp_path):
    path = tmp_path / "owners.csv"
    path.write_text("id,owner\ne0,ann\n")
    table = ReferenceTable.open(path, "id", ("owner",), "rules[0].enrich.table")
    rules = (Enrich("owner", "id", table),)

    def owner() -> str:
        return apply_rules(events(spark, None), rules, {}).events.collect()[0]["owner"]

    assert owner() == "ann"
    path.write_text("id,owner\ne0,bernard\n")
    table.refresh()
    assert (owner(), table.last_error) == ("bernard", None)
    path.write_text("id\ne0\n")
    table.refresh()
    assert owner() == "bernard"
    assert "no column 'owner'" in table.last_error


def test_only_columns_are_asked_for():
    rules = (Filter("f", "value > 3 and node = 'n1'"), Project("p", {"x": "upper(source)"}, ("attributes",)))
    assert {"value", "node", "source"} <= list_named_columns(rules)
    assert "attributes" not in list_named_columns(rules)


@pytest.fixture
def filled(control_server, nodes, plant_topology):
    """Ranges of containers that hold twelve events, a third of them of type noise."""
    with Client(control_server.url, "test") as client:
        client.publish("telemetry", [{"id": f"e{n}", "type": "ABN"[n % 3], "source": "s"} for n in range(12)])
    return tuple(Range("telemetry", name, node.url, "0-0", "+") for name, node in plant_topology.nodes.items())


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_rules_are_planned_once_and_run_for_batch_after_batch(spark, control_server, control, filled, engine):
    application = parse_application_text(f"{PLANNED}engine: {engine}\n", SHIPPED.parent)
    plans = RulePlans(spark, ReplicaRules(control_server.url, application, "iap1", 1.0))
    results = ResultQueue(control, "planned")
    for tick in (1, 2):
        batch = (tick, results.begin("iap1", 0, tick), (filled[:1], filled[1:]))
        portion = BatchAssignment(*batch, 60_000_000, False, Shedder(), {"least": 3 * tick})
        plan = plans.plan(2)
        emitted, passed = plans.run(portion)
        assert plans.plan(2) is plan
        assert (sum(row["kept"] for row in emitted), passed) == (4 if tick == 1 else 0, {"noise": 8})
        blobs = [Blob(*row[:7]) for row in emitted if row["name"]]
        rows = results.read(Result("iap1", tick, None, tuple(blobs)), [blob.name for blob in blobs])
        found = sorted(name for batch in rows for name in batch.column("id").to_pylist())
        assert found == (["e0", "e3", "e6", "e9"] if tick == 1 else [])
