"""Declared rules, run by a real Spark."""

import re

import pytest

from queues.errors import BadInput
from workers.pipeline.application import SHIPPED
from workers.pipeline.declaration import read_application
from workers.pipeline.rules import Filter, Project, apply_rules, check_rules, expanded, rule_counts
from workers.pipeline.session import start_session
from workers.pipeline.source import COLUMNS

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    session = start_session("rules", "local[1]", tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="module")
def no_events(spark):
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    kinds = [column.split()[1] for column in COLUMNS.split(", ")]
    cells = ", ".join(f"cast(null as {kind}) {name}" for name, kind in zip(names, kinds, strict=True))
    return spark.sql(f"select {cells} where false")


def events(spark, *addresses: str | None):
    """One event per address, as telemetry writes it."""
    rows = [None if each is None else f'{{"address":"{each}"}}' for each in addresses]
    places = ", ".join("(?, ?)" for _ in rows)
    values = [cell for place, row in enumerate(rows) for cell in (f"e{place}", row)]
    return spark.sql(
        f"select id, timestamp_seconds(1) time, 'load' type, 's' source, 'load1' key, 3.0D value, attributes "
        f"from values {places} as t(id, attributes)",
        args=values,
    )


def test_the_shipped_rules_discard_the_test_subnet_and_name_the_hosts(spark):
    rules = read_application(SHIPPED).rules
    given = events(spark, "92.126.10.7", "92.126.11.5", "92.126.11.9", "10.1.2.3", "no address", None)
    ruled = apply_rules(given, rules)
    found = {row["id"]: (row["host_name"], row["host_type"]) for row in ruled.events.collect()}
    assert found == {
        "e1": ("web-1", "production"),
        "e2": ("production server", "production"),
        "e3": ("this plant", "production"),
        "e4": (None, None),
        "e5": (None, None),
    }


def test_what_passes_each_rule_is_counted(spark):
    rules = (Filter("first", "id != 'e0'"), Project("between", {"x": "1"}), Filter("last", "id = 'e1'", True))
    ruled = apply_rules(events(spark, None, None, None, None), rules)
    kept = len(ruled.events.collect())
    counts = [(count["name"], count["in"], count["out"]) for count in rule_counts(rules, ruled, 4, kept)]
    assert counts == [("first", 4, 3), ("between", 3, 3), ("last", 3, 2)]


def test_a_value_that_cannot_be_cast_is_unknown_and_ends_nothing(spark):
    rules = (Project("p", {"number": "cast(id as int)"}), Filter("f", "number > 1", discard=True))
    assert apply_rules(events(spark, None), rules).events.count() == 1


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ((Filter("f", "nobody > 1"),), r"rules\[0\] \(f\).*nobody"),
        ((Project("p", {"x": "1 +"}),), r"rules\[0\] \(p\)"),
        ((Project("p", drop=("value",)),), r"patterns.*'value'"),
    ],
)
def test_a_rule_spark_does_not_understand_is_named(no_events, rules, says):
    with pytest.raises(BadInput, match=re.compile(says, re.DOTALL)):
        check_rules(no_events, rules, frozenset({"source"}))


def test_a_column_a_pattern_needs_and_nobody_makes_is_named(no_events):
    with pytest.raises(BadInput, match="host_type"):
        check_rules(no_events, (), frozenset({"host_type"}))


def test_the_shipped_application_is_understood(no_events):
    application = read_application(SHIPPED)
    check_rules(no_events, application.rules, application.columns)


def test_a_wrong_subnet_in_a_rule_is_refused():
    with pytest.raises(BadInput, match=r"92\.126\.10\.0/24"):
        expanded("in_subnet(address, '92.126/99')", "rule-1")
