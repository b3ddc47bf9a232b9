"""What a declared application takes, and how it refuses what it does not."""

import copy
import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from workers.pipeline.declaration.declaration import build_application, parse_application_text, read_application
from workers.pipeline.rules.reference import group_by_prefix, read_reference
from workers.pipeline.runtime.application import SHIPPED, Settings

GOOD = {
    "name": "app",
    "queues": ["telemetry"],
    "sink": "alert",
    "rules": [{"name": "one", "discard": "value is null"}],
    "patterns": [{"name": "ab", "pattern": "SEQ(A; B)", "key": "source", "within_seconds": 10}],
}

OTHER = {"name": "ba", "pattern": "SEQ(B; A)", "key": "source", "within_seconds": 10, "emits": "ab"}


def changed(path: list, value: object) -> dict:
    document = copy.deepcopy(GOOD)
    *parents, last = path
    place = document
    for step in parents:
        place = place[step]
    place[last] = value
    return document


@pytest.mark.parametrize(
    ("way", "refused"),
    [
        ("contiguity: strict, pattern: 'OR(SEQ(a; b; c), SEQ(a; b))'", True),
        ("consume: skip-past-last, pattern: 'OR(SEQ(a; b; c), SEQ(d; e))'", True),
        ("consume: skip-past-last, pattern: 'SEQ(a; OR(b, c))'", False),
        ("pattern: 'OR(SEQ(a; b; c), SEQ(d; e))'", False),
    ],
)
def test_a_match_that_may_wait_for_another_way_feeds_no_operator(way, refused):
    """It would come out behind events that the next operator has had."""
    text = "name: a\nqueues: [telemetry]\nsink: alert\noperators:\n" + "".join(
        f"  - {{name: {name}, key: source, patterns: [{{name: {name}p, within_seconds: 9, {more}}}]}}\n"
        for name, more in (("low", f"emits: px, {way}"), ("high", "pattern: SEQ(px)"))
    )
    if not refused:
        assert parse_application_text(text, Path()).graph.inner_types == {"px"}
        return
    with pytest.raises(BadInput, match="Make each branch a pattern"):
        parse_application_text(text, Path())


def test_the_shipped_application_has_both_rules_of_the_paper_and_a_sequence():
    application = read_application(SHIPPED)
    assert [rule.name for rule in application.rules] == ["rule-1", "host"]
    assert {pattern.name: pattern.symbols for pattern in application.patterns} == {
        "rule-2": ("overloaded",),
        "load-rises": ("busy", "loaded"),
    }
    assert application.graph.routes == ("host_type", "source")


def test_a_symbol_nobody_defined_is_an_event_type(tmp_path):
    pattern = build_application(GOOD, tmp_path).patterns[0]
    assert pattern.defines["A"].text == "type == 'A'"
    assert (pattern.within_us, pattern.emits) == (10_000_000, "ab")


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (["speed"], 3, "application.speed"),
        (["name"], "Not a name", "name"),
        (["queues"], [], "queues"),
        (["sink"], "telemetry", "sink"),
        (["lateness_seconds"], -1, "lateness_seconds"),
        (["latency_seconds"], 0, "latency_seconds"),
        (["latency_seconds"], "soon", "latency_seconds"),
        (["engine"], "java", "engine"),
        (["rules", 0], {"name": "x", "keep": "a", "discard": "b"}, "rules[0]"),
        (["rules", 0], {"name": "x", "keep": 3}, "rules[0].keep"),
        (["rules", 0], {"name": "x", "project": {"compute": {"1x": "a"}}}, "rules[0].project.compute"),
        (["rules", 0], {"name": "x", "enrich": {"table": "t.csv"}}, "rules[0].enrich.using"),
        (["patterns", 0, "pattern"], "A then B", "patterns[0].pattern"),
        (["patterns", 0, "define"], {"C": "value > 1"}, "patterns[0].define.C"),
        (["patterns", 0, "define"], {"A": "value >"}, "patterns[0].define.A"),
        (["patterns", 0, "define"], {"A": "value > 1 and value < 0"}, "patterns[0].define.A"),
        (["patterns", 0, "pattern"], "SEQ(^A; B)", "patterns[0].pattern"),
        (["patterns", 0, "pattern"], "SEQ(A; NOT B; B)", "patterns[0].pattern"),
        (["patterns", 0, "within_seconds"], float("inf"), "patterns[0].within_seconds"),
        (["patterns", 0, "severity"], "loud", "patterns[0].severity"),
        (["patterns", 0, "weight"], -1, "patterns[0].weight"),
        (["patterns"], [*GOOD["patterns"], {**OTHER, "weight": 2}], "patterns[1].weight"),
        (["patterns"], GOOD["patterns"] * 2, "operators"),
        (["replicas"], 0, "replicas"),
        (["attributes"], {"value": "number"}, "attributes.value"),
        (["attributes"], {"level": "size"}, "attributes.level"),
        (["criteria"], {"slow": "much"}, "criteria.slow"),
        (["monitor"], [{"criterion": "x", "column": "value", "quantile": 0.9}], "monitor[0].criterion"),
        (["rules", 0], {"name": "x", "sample": 1.5}, "rules[0].sample"),
        (["rules", 0], {"name": "x", "cleanse": {"value": 3}}, "rules[0].cleanse.value"),
        (["types"], ["A"], "patterns[0].pattern"),
        (["sinks"], [{"queue": "other", "types": ["nobody"]}], "sinks[0].types"),
        (["operators"], [{"name": "o", "key": "key", "patterns": GOOD["patterns"]}], "operators[0].patterns[0].key"),
    ],
)
def test_what_is_wrong_is_refused_by_the_name_of_its_field(path, value, field, tmp_path):
    with pytest.raises(BadInput) as refused:
        build_application(changed(path, value), tmp_path)
    assert refused.value.field == field


LEVELS = {
    "key": "source",
    "operators": [
        {"name": "low", "patterns": [{"name": "ab", "pattern": "SEQ(A; B)", "within_seconds": 10}]},
        {"name": "high", "patterns": [{"name": "twice", "pattern": "SEQ(ab; ab)", "within_seconds": 60}]},
    ],
}


@pytest.mark.parametrize(
    ("path", "value", "field", "hint"),
    [
        (["rules", 0, "discard"], "valu > 1", "rules[0].discard", "(did you mean value?)"),
        (["patterns", 0, "define"], {"A": "valu > 1"}, "patterns[0].define.A", "(did you mean value?)"),
        (["patterns", 0, "define"], {"A": "prev(valu) > 1"}, "patterns[0].define.A", "(did you mean value?)"),
        (["patterns", 0, "define"], {"A": "temperature > 1"}, "patterns[0].define.A", "'temperature' is not a column;"),
        (["patterns", 0, "key"], "sorce", "patterns[0].key", "(did you mean source?)"),
        (["rules", 0], {"name": "one", "project": {"drop": ["source"]}}, "patterns[0].key", "'source' is not a column"),
    ],
)
def test_a_misspelled_name_is_refused_before_spark_with_the_name_that_was_meant(path, value, field, hint, tmp_path):
    with pytest.raises(BadInput) as error:
        build_application(changed(path, value), tmp_path)
    assert error.value.field == field and hint in error.value.message


def test_declared_attributes_and_computed_columns_are_names_too(tmp_path):
    document = changed(["patterns", 0, "define"], {"A": "temperature > 1 and heat > 2"})
    document["attributes"] = {"temperature": "number"}
    document["rules"] = [{"name": "one", "project": {"compute": {"heat": "temperature * 2"}}}]
    assert build_application(document, tmp_path).graph.columns >= {"temperature", "heat"}


def test_operators_read_what_patterns_emit_and_edges_follow(tmp_path):
    document = {key: value for key, value in GOOD.items() if key != "patterns"} | LEVELS
    application = build_application(document, tmp_path)
    assert [[operator.name for operator in level] for level in application.graph.levels] == [["low"], ["high"]]
    assert [(edge.source, edge.target, edge.type) for edge in application.graph.edges] == [("low", "high", "ab")]
    assert application.sinks == {"twice": ("alert",)}


def test_operators_that_read_one_another_in_a_circle_are_refused_by_name(tmp_path):
    document = copy.deepcopy({key: value for key, value in GOOD.items() if key != "patterns"} | LEVELS)
    document["operators"][0]["patterns"][0]["pattern"] = "SEQ(A; twice)"
    with pytest.raises(BadInput, match=r"cycle: .*(low → high → low|high → low → high)") as refused:
        build_application(document, tmp_path)
    assert refused.value.field == "operators"


def test_what_is_wrong_is_shown_with_its_line(tmp_path):
    text = "name: app\nqueues: [telemetry]\nsink: alert\nrules:\n  - name: one\n    keep: 3\npatterns: []\n"
    with pytest.raises(BadInput, match=r"rules\[0\]\.keep: .*line 6"):
        parse_application_text(text, tmp_path)


@pytest.mark.parametrize("text", ["name: [", "just a text", ""])
def test_a_file_that_is_no_declaration_is_refused(text, tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match="application"):
        read_application(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("subnet,host\n10.0.0.0/8,a\n10.0.0.0/8,b\n", "repeats an earlier value"),
        ("subnet,host\n10.0.0.1/8,a\n", "host bits"),
        ("subnet\n10.0.0.0/8\n", "no column 'host'"),
        ("subnet,host\n10.0.0.0/8\n", "line 2"),
        ("", "no column"),
    ],
)
def test_a_broken_reference_table_is_refused_with_its_name(text, says, tmp_path):
    path = tmp_path / "hosts.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=says) as refused:
        read_reference(path, "subnet", ("host",), "rules[0].enrich.table")
    assert "hosts.csv" in str(refused.value)


NETWORKS = st.lists(
    st.tuples(st.integers(0, 255), st.integers(24, 32)).map(
        lambda made: ipaddress.IPv4Network((0x0A000000 + made[0], made[1]), strict=False)
    ),
    unique=True,
    max_size=12,
)


@given(NETWORKS, st.integers(0, 255))
def test_an_address_finds_the_row_of_its_longest_prefix_first(networks, host):
    address = 0x0A000000 + host
    rows = group_by_prefix({network: (str(network),) for network in networks})
    found = [of_length[bits][0] for n, of_length in rows.items() if (bits := address >> (32 - n)) in of_length]
    around = [network for network in networks if ipaddress.IPv4Address(address) in network]
    expected = [str(max(around, key=lambda network: network.prefixlen))] if around else []
    assert found[:1] == expected


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_setting_that_is_no_time_is_refused_by_its_name(text):
    with pytest.raises(BadInput, match="WEIR_PIPELINE_TRIGGER_SECONDS"):
        Settings.load({"WEIR_PIPELINE_TRIGGER_SECONDS": text})


@pytest.mark.parametrize(
    ("declared", "lateness", "latency"),
    [
        ({}, 5.0, None),
        ({"lateness_seconds": 2}, 2.0, None),
        ({"latency_seconds": 0.5}, 0.2, 0.5),
        ({"latency_seconds": 0.5, "lateness_seconds": 0.05}, 0.05, 0.5),
    ],
)
def test_the_lateness_follows_the_declared_latency(declared, lateness, latency):
    controls = build_application({**GOOD, **declared}, Path()).controls
    assert (controls.lateness_seconds, controls.latency_seconds) == (pytest.approx(lateness), latency)


def test_a_latency_that_the_lateness_takes_alone_is_refused():
    with pytest.raises(BadInput, match=r"must be greater than lateness_seconds \(2 s\), not 1 s") as refused:
        build_application({**GOOD, "latency_seconds": 1, "lateness_seconds": 2}, Path())
    assert refused.value.field == "latency_seconds"


def test_producers_in_order_are_declared_for_every_queue():
    queues = ["telemetry", "process"]
    declared = {"telemetry": ["gateway"], "process": ["a", "b"]}
    application = build_application({**GOOD, "queues": queues, "ordered_producers": declared}, Path())
    assert application.ordered_producers == {"telemetry": ("gateway",), "process": ("a", "b")}


@pytest.mark.parametrize(
    ("producers", "field", "said"),
    [
        (["gateway"], "ordered_producers", "must be an object"),
        ({"unknown": ["gateway"]}, "ordered_producers.unknown", "is unknown"),
        ({"telemetry": "gateway", "process": ["a"]}, "ordered_producers.telemetry", "must be a list"),
        ({"telemetry": ["a", "a"], "process": ["a"]}, "ordered_producers.telemetry", "'a' is used twice"),
        ({"telemetry": ["a"]}, "ordered_producers", "names no producers of 'process'. Add all producers"),
    ],
)
def test_producers_in_order_that_are_incomplete_are_rejected(producers, field, said):
    with pytest.raises(BadInput, match=said) as refused:
        build_application({**GOOD, "queues": ["telemetry", "process"], "ordered_producers": producers}, Path())
    assert refused.value.field == field
