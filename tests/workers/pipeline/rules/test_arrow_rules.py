"""Rules that run in Arrow keep, change, and count the events that they do in Spark."""

from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from bench.pipeline.random_rules import LAYOUT, find_difference, make_rows
from common.errors import BadInput
from workers.pipeline.declaration.declaration import read_application
from workers.pipeline.events.layout import Attribute, Layout
from workers.pipeline.rules.arrow_rules import ArrowRules, check_arrow_rules, find_spark_reason, read_addresses
from workers.pipeline.rules.arrow_values import NotInArrowError
from workers.pipeline.rules.reference import ReferenceTable
from workers.pipeline.rules.rule_sql import apply_rules, check_rules, create_empty_events
from workers.pipeline.rules.rules import Cleanse, Enrich, Filter, Project, Sample, list_named_columns
from workers.pipeline.runtime.application import SHIPPED

WHOLE = replace(LAYOUT, columns=(*LAYOUT.columns, "source"))  # with all columns that every event has
NETWORKS = "subnet,host,kind\n92.126.10.0/24,web,test\n92.126.0.0/16,plant,live\n10.0.0.0/8,lab,live\n0.0.0.0/0,any,\n"
TYPES = "type,owner\ncpu,ann\nload,bert\n"


@pytest.fixture
def tables(tmp_path):
    (tmp_path / "networks.csv").write_text(NETWORKS)
    (tmp_path / "types.csv").write_text(TYPES)
    (tmp_path / "some.csv").write_text("\n".join(NETWORKS.splitlines()[:3]) + "\n")
    return {
        "networks": ReferenceTable.open(tmp_path / "networks.csv", "subnet", ("host", "kind"), "rules[0]"),
        "some": ReferenceTable.open(tmp_path / "some.csv", "subnet", ("kind",), "rules[0]"),
        "types": ReferenceTable.open(tmp_path / "types.csv", "type", ("owner",), "rules[0]"),
    }


def list_rules(tables):
    return (
        Filter("up", "up is not false"),
        Enrich("networks", "address", tables["networks"]),
        Enrich("owners", "type", tables["types"]),
        Filter("test", "kind = 'test' and value > :least", discard=True),
        Project("numbers", {"written": "cast(written as double)", "twice": "user * 2"}, ("size",)),
        Cleanse("clean", {"load": "case when load > -1e300 then abs(load) end"}),
        Enrich("again", "address", tables["some"]),
        Sample("some", 0.8),
        Filter("last", "coalesce(owner, host, 'x') <> 'bert'"),
    )


CASE = "which differs from another one only in its case"
NAMES = ("address", "host", "kind", "load", "owner", "time", "twice", "type", "user", "value", "written")


def run_in_arrow(rules, batch, names=NAMES):
    in_arrow = ArrowRules(rules, LAYOUT, names)
    passed = dict.fromkeys(in_arrow.counted, 0)
    return in_arrow.apply(batch, passed), passed


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("count", [400, 40])
def test_rules_in_arrow_give_what_spark_gives(spark, tables, count):
    batch, rules = make_rows(Random(count), count), list_rules(tables)
    own, passed = run_in_arrow(rules, batch)
    ruled = apply_rules(spark.createDataFrame(pa.Table.from_batches([batch])), rules, {"least"})
    kept = ruled.events.select(*NAMES)
    (expected,) = kept.toArrow().combine_chunks().to_batches()
    assert passed == ruled.count_passed(kept)
    assert own.num_rows == expected.num_rows > 0
    for name in NAMES:
        assert find_difference(own.column(name), expected.column(name), own) is None, name


def test_the_types_of_columns_after_rules_are_those_that_spark_finds(spark, tables):
    shipped = read_application(SHIPPED)
    for rules, layout in ((list_rules(tables), WHOLE), (shipped.rules, shipped.layout)):
        expected = check_rules(create_empty_events(spark, layout), rules, frozenset(), layout.criteria)
        assert check_arrow_rules(rules, layout, frozenset()) == expected


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (Project("p", drop=("value",)), "patterns: need column 'value'; after the rules, the columns are id, type"),
        (Project("p", {"value": "type"}), "rules: must make column value a number, not a string"),
    ],
)
def test_rules_without_what_every_event_has_are_rejected_without_spark(spark, rule, says):
    with pytest.raises(BadInput, match=says):
        check_arrow_rules((rule,), WHOLE, frozenset())
    with pytest.raises(BadInput, match=says):
        check_rules(create_empty_events(spark, WHOLE), (rule,), frozenset(), WHOLE.criteria)


def test_what_passes_each_rule_is_counted_except_the_last(tables):
    _, passed = run_in_arrow(list_rules(tables), make_rows(Random(1), 300))
    assert list(passed) == ["up", "test", "clean", "some"]
    assert 300 > passed["up"] > passed["test"] > passed["clean"] > passed["some"] > 0


def test_an_empty_batch_stays_empty(tables):
    own, passed = run_in_arrow(list_rules(tables), make_rows(Random(1), 0))
    assert own.num_rows == 0
    assert set(passed.values()) == {0}


def test_an_address_has_the_longest_network_that_it_is_in(tables):
    layout = Layout((), (Attribute("address", "text"),))
    batch = pa.RecordBatch.from_pydict({"address": ["92.126.10.7", "92.126.9.1", "8.8.8.8", "x", None]}, layout.schema)
    rules = ArrowRules((Enrich("networks", "address", tables["networks"]),), layout, ("host",))
    assert rules.apply(batch, {}).column("host").to_pylist() == ["web", "plant", "any", None, None]


def test_an_address_is_a_number_where_it_is_one():
    wrong = ["256.1.1.1", "1.2.3", "1.2.3.4.5", "-1.2.3.4", "1.2.3.x", "", None]
    right = ["0.0.0.0", "1.2.3.4", "255.255.255.255", " 1.2.3.+4"]
    assert read_addresses(pa.array(right + wrong)).to_pylist() == [0, 16_909_060, 2**32 - 1, 16_909_060] + [None] * 7


def test_the_shipped_application_runs_in_arrow():
    application = read_application(SHIPPED)
    assert find_spark_reason(application.rules, application.layout) is None
    assert list_named_columns(application.rules)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (Project("minutes", {"minutes": "round(value / 60, 1)"}), 'rule "minutes" uses round()'),
        (Project("case", {"Value": "1"}), f'rule "case" uses the name Value, {CASE}'),
        (Filter("late", "time > key"), 'rule "late" uses a cast of a column from string to timestamp'),
    ],
)
def test_rules_that_are_not_covered_say_why(rule, reason):
    assert find_spark_reason((rule,), LAYOUT) == reason
    with pytest.raises(NotInArrowError):
        ArrowRules((rule,), LAYOUT, ())


def test_a_declaration_can_choose_spark():
    assert find_spark_reason((), LAYOUT, "spark") == "the declaration sets engine: spark"
