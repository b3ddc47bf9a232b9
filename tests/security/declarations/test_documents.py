"""Documents from outside: what Weir can't hold or print is refused where it is read, by its place."""

import io
import json
import sys

import pytest
from django.core.management import call_command

from common.documents import MAX_DEPTH, MAX_YAML_CHARACTERS, check_value, read_json, read_yaml
from common.errors import BadInput

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"observations": [{"measured": NaN}]}', "observations[0].measured"),
        ('{"observations": [{"measured": 1}, {"measured": Infinity}]}', "observations[1].measured"),
        ('{"a": {"b": [[1, -Infinity]]}}', "a.b[0][1]"),
        ('{"a": 1e999}', "a"),
        ('{"a": [' + "9" * 5_000 + "]}", "a[0]"),
        ('{"a": 1, "b": 2, "a": 3}', "a"),
        ('{"x": {"a": 1, "a": 3}}', "x.a"),
        ('{"a": ["\\ud800"]}', "a[0]"),
        ("NaN", "document"),
        ("", "document"),
        ("{", "document"),
        (DEEP, "document"),
        ('{"a":' * 100_000, "document"),
        (b'{"a": "\xff"}', "document"),
    ],
)
def test_json_is_refused_by_the_place_of_what_is_wrong(text, field):
    with pytest.raises(BadInput) as refused:
        read_json(text)
    assert refused.value.field == field
    str(refused.value).encode()


def test_depth_is_counted_where_python_would_still_read():
    assert read_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(BadInput, match=f"nested deeper than {MAX_DEPTH}") as refused:
        read_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert refused.value.field == "[0]" * MAX_DEPTH


def test_a_key_of_half_a_surrogate_pair_can_be_printed():
    with pytest.raises(BadInput) as refused:
        read_json('{"\\ud800": 1}')
    str(refused.value).encode()


def test_what_is_sound_stays_as_it_is():
    document = {"a": [1, -2.5, None, True, "ä", {"b": {}}], "c": 10**39}
    assert read_json(json.dumps(document)) == document
    assert check_value(document, "document") is document


def test_yaml_reads_as_a_safe_loader_does_and_knows_its_lines():
    text = "a: 1\nb:\n  - x: yes\n    y: 0x10\n  - 'two'\nc: ~\nd: 1.5\ne: \"1\"\nf: []\n"
    document = read_yaml(text)
    assert document.value == {"a": 1, "b": [{"x": "yes", "y": 16}, "two"], "c": None, "d": 1.5, "e": "1", "f": []}
    assert [document.find_line(place) for place in ("a", "b[0].y", "b[1]", "b[1].z", "nobody", "e")] == [
        1,
        4,
        5,
        5,
        1,
        8,
    ]
    assert read_yaml("").value is None


@pytest.mark.parametrize(
    "text", ["[" * 90_000, "- " * 40_000, "a: &a [*a]", "&a b", "!!int 3", "x" * (MAX_YAML_CHARACTERS + 1)]
)
def test_yaml_that_is_a_bomb_is_refused(text):
    with pytest.raises(BadInput):
        read_yaml(text)


COMMANDS = {
    "split": ["split"],
    "match": ["match"],
    "decide": ["decide", "flow"],
    "design": ["design", "place"],
    "selectivity": ["design", "selectivity"],
}
SENT = {
    "deep": ('{"points": ' + DEEP + "}", "document"),
    "deep objects": ('{"a":' * 50_000 + "1" + "}" * 50_000, "document"),
    "NaN": ('{"observations": [{"measured": NaN}]}', "observations[0].measured"),
    "infinite": ('{"events": [{"time": 0}, {"time": Infinity}]}', "events[1].time"),
    "digits": ('{"count": ' + "7" * 5_000 + "}", "count"),
    "surrogate": ('{"key": "\\ud800"}', "key"),
    "twice": ('{"count": 1, "count": 2}', "count"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("sent", SENT)
def test_every_command_refuses_it_in_one_line_with_exit_2(command, sent, monkeypatch):
    text, field = SENT[sent]
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    said = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command(*COMMANDS[command], "-", stderr=said)
    assert ended.value.code == 2
    assert said.getvalue().startswith(f"{field}: ")
    assert said.getvalue().count("\n") <= 1


@pytest.mark.parametrize(
    "expression", ["SEQ(SEQ(SEQ(A{1000}){1000}){1000})", "OR(A, B){1000}", "A{" + "9" * 5_000 + "}"]
)
@pytest.mark.parametrize("command", [["match"], ["design", "selectivity"]])
def test_an_expression_that_multiplies_is_refused_by_every_command(expression, command, monkeypatch):
    given = {"pattern": expression, "events": []}
    if command[0] == "design":
        given = {"expression": f"SEQ({expression}; SEQ({expression}; C))", "rates": {"A": 1.0, "B": 1.0, "C": 1.0}}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(given)))
    try:
        call_command(*command, "-", stdout=io.StringIO(), stderr=io.StringIO())
    except SystemExit as ended:
        assert ended.code == 2
