"""Numbers that others write as text: plain ASCII, finite, and of a bounded length."""

import math

import pytest

from common import parsing
from common.errors import BadInput

FULL_WIDTH, ARABIC, SUPERSCRIPT = "\uff11\uff12", "\u0663", "\u00b2"
NO_NUMBERS = ["", " ", "1_000", FULL_WIDTH, ARABIC, SUPERSCRIPT, "1 000", "1,5", "0x10", "1e", "--1", "12a"]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_python_may_take_for_a_number_is_none(text):
    assert parsing.parse_decimal_number(text) is None
    assert parsing.parse_whole_number(text) is None
    assert parsing.parse_any_number(text) is None
    assert parsing.parse_digits(text) is None
    with pytest.raises(BadInput, match="times: must be a number"):
        parsing.read_number(text, "times")
    with pytest.raises(ValueError):
        parsing.parse_measured_number(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-7", -7),
        ("+3", 3),
        (" 5 ", 5),
        ("1e3", 1000.0),
        ("1E-3", 0.001),
        (".5", 0.5),
        ("5.", 5.0),
        ("123456789012345678", 123456789012345678),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_a_number_is_read_as_it_is_written(text, value):
    assert parsing.parse_any_number(text) == value
    assert type(parsing.parse_any_number(text)) is type(value)


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e999"])
def test_what_is_not_finite_is_no_number_but_may_be_measured(text):
    assert parsing.parse_any_number(text) is None
    with pytest.raises(BadInput):
        parsing.read_number(text, "times")
    assert not math.isfinite(parsing.parse_measured_number(text))


def test_a_text_of_thousands_of_digits_is_no_number():
    assert parsing.parse_decimal_number("9" * 5_000) is None
    assert parsing.parse_whole_number("9" * 19) is None


@pytest.mark.parametrize("value", [True, None, [1], b"1"])
def test_what_is_neither_number_nor_text_is_not_measured(value):
    with pytest.raises(TypeError):
        parsing.parse_measured_number(value)
