"""YAML as people write it who know version 1.1, 1.2 or neither: numbers, words, dates, keys and bombs."""

import pytest

from common.documents import read_yaml
from common.errors import BadInput

WORDS = """
no NO yes on Off y 2026-11-29 2026-11-29T08:00:00Z 1.2.3 10.0.0.1:80 n1:n2 snake_case _1 1e e3 \uff11\uff12
"""


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("1e-3", 0.001),
        ("1e3", 1000.0),
        ("-2.5E+2", -250.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("+7", 7),
        ("0", 0),
        ("0.10", 0.1),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("False", False),
        *((text, None) for text in ("~", "null", "")),
        *((text, text) for text in WORDS.split()),
        ("'010'", "010"),
        ('"1e3"', "1e3"),
        ('"1:30"', "1:30"),
    ],
)
def test_a_scalar_is_what_version_1_2_reads(scalar, value):
    read = read_yaml(f"times: {scalar}\n").value["times"]
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("scalar", "hint"),
    [
        ("010", "write 10"),
        ("-007", "write 7"),
        ("00", "write 0"),
        *((text, "base-60") for text in ("1:30", "10:30", "1:30:15")),
        ("1_000", "write 1000"),
        ("1_000.5", "write 1000.5"),
        ("0b101", "decimal"),
        *((text, "finite") for text in (".inf", "-.INF", ".nan", "1e999")),
        ("9" * 41, "at most 40 digits"),
    ],
)
def test_what_the_versions_read_differently_is_refused_with_what_to_write(scalar, hint):
    with pytest.raises(BadInput, match=hint) as refused:
        read_yaml(f"a: 1\nevery_seconds: {scalar}\n")
    assert refused.value.field == "every_seconds" and "line 2" in refused.value.message


@pytest.mark.parametrize(
    "text", ["a: 1\na: 2\n", "a: 1\n'a': 2\n", "1: x\n1: y\n", "a: &x [1]\nb: *x\n", "<<: &x {a: 1}\n", "a: !!str 1\n"]
)
def test_keys_given_twice_anchors_and_tags_are_refused(text):
    with pytest.raises(BadInput):
        read_yaml(text)
