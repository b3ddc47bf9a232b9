"""What every check of outside values has in common: what it refuses, and how it says so."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import checks, parsing
from common.errors import BadInput, BadTopology, Forbidden

NUMBERS = {
    "number": checks.accept_number(),
    "number in a range": checks.accept_number(0, 10),
    "number above": checks.accept_greater_than(0),
    "whole": checks.accept_whole_number(),
    "whole in a range": checks.accept_whole_number(0, 10),
    "text": checks.from_text(checks.accept_number(0, 10), float),
}
OTHERS = {
    "text": checks.accept_text(),
    "text that says something": checks.accept_text(blank=False),
    "name": checks.accept_matching_text(re.compile(r"[a-z]+\Z"), "a name"),
    "name that people give": checks.accept_name(),
    "text of a length": checks.accept_non_empty_text(5),
    "choice": checks.accept_choice(("a", "b")),
    "flag": checks.FLAG,
    "day": checks.DAY,
    "moment": checks.TIMESTAMP,
    "object": checks.accept_mapping(checks.accept_whole_number()),
    "record": checks.record(a=checks.accept_whole_number()),
    "list": checks.list_of(checks.accept_whole_number(), "a list of whole numbers"),
}
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize("value", [True, False, math.nan, math.inf, -math.inf, None, [], {}, "x", 1j])
@pytest.mark.parametrize("check", NUMBERS.values(), ids=NUMBERS)
def test_what_is_no_finite_number_is_refused_as_one(check, value):
    assert not check.accepts(value)


@pytest.mark.parametrize(
    "check", [*NUMBERS.values(), *OTHERS.values(), checks.allow_null(checks.accept_whole_number())]
)
@given(value=anything)
def test_a_check_takes_a_value_or_names_the_field_and_what_it_takes(check, value):
    try:
        check.validate(value, "a.field")
    except BadInput as error:
        assert error.field == "a.field"
        assert error.message.startswith(f"must be {check.takes}, not ")
        assert len(error.message) < len(check.takes) + 2 * checks.MAX_SHOWN
    else:
        assert check.accepts(value)


@pytest.mark.parametrize(("check", "words"), [
    (checks.accept_number(), "a number"),
    (checks.accept_number(0), "a number of at least 0"),
    (checks.accept_number(0, 86_400, "a number of seconds"), "a number of seconds from 0 to 86400"),
    (checks.accept_greater_than(0), "a finite number above 0"),
    (checks.accept_greater_than(0, 1, "a share"), "a share above 0 and at most 1"),
    (checks.accept_whole_number(1, 2**62), f"a whole number from 1 to {2**62}"),
    (checks.accept_choice(("b", "a")), "one of b, a"),
    (checks.accept_name(), "a name of letters, digits, dots, -, and _ (at most 60 characters)"),
    (checks.accept_non_empty_text(200), "a string of 1 to 200 characters"),
    (checks.allow_null(checks.accept_whole_number(0, 1)), "a whole number from 0 to 1, or null"),
    (checks.accept_mapping(checks.accept_number(0, 1)), "an object in which each value is a number from 0 to 1"),
    (checks.record(value=checks.accept_number(), owner=checks.accept_text()), "an object with the fields value, owner"),
])  # fmt: skip
def test_it_says_in_words_what_it_takes(check, words):
    assert check.takes == words


def test_a_number_that_is_given_as_text_is_kept_as_a_number():
    whole = checks.from_text(checks.accept_whole_number(0, 10), checks.convert_to_integer)
    assert [whole.read(each) for each in ("5", 5, 5.0)] == [5, 5, 5]
    assert not any(whole.accepts(each) for each in ("5.5", "11", "", "five", "1e999", True))


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n", "é", "a" * 61, 5, None])
def test_a_name_that_people_give_begins_with_a_letter_or_digit_and_is_no_longer_than_so(name):
    assert checks.accept_name().accepts("Night.run-2_a" + "a" * 40)
    assert not checks.accept_name().accepts(name)


def test_a_text_of_a_length_is_kept_without_the_blanks_around_it():
    assert checks.accept_non_empty_text(3).validate("  abc ", "title") == "abc"
    assert not checks.accept_non_empty_text(3).accepts("abcd") and not checks.accept_non_empty_text(3).accepts("  ")


def test_a_whole_number_is_compared_exactly_however_large():
    assert checks.is_whole(2**63, 0, 2**63) and not checks.is_whole(2**63 + 1, 0, 2**63)
    assert not checks.is_number(10**400, 0, 1e300)


def test_a_timestamp_without_a_zone_is_utc():
    assert checks.TIMESTAMP.read("2026-11-20T06:00:00") == "2026-11-20T06:00:00+00:00"
    assert checks.TIMESTAMP.read("2026-11-20T06:00:00+02:00") == "2026-11-20T04:00:00+00:00"


def test_unknown_names_are_refused_with_their_path_and_the_known_ones():
    with pytest.raises(BadTopology, match=r"^nodes\.n1\.colour: is unknown; known names: url, busy$"):
        checks.refuse_unknown({"colour": 1}, ("url", "busy"), "nodes.n1", BadTopology)
    with pytest.raises(BadInput) as refused:
        checks.refuse_unknown({"x" * 10_000: 1}, (), "")
    assert refused.value.field == "x" * checks.MAX_KEY


def test_what_is_too_long_is_forbidden_and_not_quoted():
    with pytest.raises(Forbidden, match=r"^rules: must have at most 2 characters, not 3$"):
        checks.refuse_longer("abc", 2, "rules", " characters")


def test_what_was_given_is_quoted_in_short():
    for value in ("x" * 10**6, 10**5_000, [10**5_000], ["x" * 100] * 100, {"a": {"b": "x" * 1_000}}):
        assert len(checks.shorten_for_message(value)) <= checks.MAX_SHOWN


@pytest.mark.parametrize("text", ["", "-1", "1.0", "²", "٣", "7" * 19, "7" * 5_000])
def test_only_so_many_ascii_digits_are_a_number(text):
    assert parsing.parse_digits(text) is None
    assert parsing.parse_digits("9" * 18) == 10**18 - 1


def test_what_others_say_is_stored_with_a_mark_for_each_character_that_no_database_holds():
    said = {"a\0": ["b\ud800c", 1, None], "d": "e\nf"}
    assert checks.make_storable(said) == {"a\ufffd": ["b\ufffdc", 1, None], "d": "e\nf"}
