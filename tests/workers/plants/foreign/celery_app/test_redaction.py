"""Shown arguments and errors: enough to recognize the task, and no secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.plants.foreign import redaction
from workers.plants.foreign.redaction import HIDDEN, MASK, format_arguments, redact


@pytest.mark.parametrize(
    "text",
    [
        '{"api_key": "hunter2", "n": 1}',
        "{'user': 'eve', 'auth_token': 'hunter2'}",
        'ValueError("secret=hunter2 is wrong")',
        "postgres://eve:hunter2@db/shop",
        "postgres://eve:p@hunter2@db/shop",
        "{'PASSWORD': 'hunter2",  # the event shortened it
        "{b'password': b'correct horse hunter2'}",
        "{'auth': ('ada', 'hunter2",  # the event shortened it
        "Authorization: Basic hunter2",
        "['Accept: */*', 'Authorization: Basic hunter2', 'x']",
        "{'Authorization': 'Basic hunter2'}",
        "[('Accept', '*/*'), ('Authorization', 'Basic hunter2')]",
        "[[b'x-auth-token', b'a hunter2']]",
        "Cookie: theme=dark; session=hunter2; last=hunter2",
        r"""('{\"password\": \"correct horse \\\" hunter2\"}',)""",
        "{'password': Secret('correct horse hunter2')}",
        "{'password': <Secret correct horse hunter2>}",
        "password=>'correct hunter2'",
    ],
)
def test_what_a_secret_name_holds_is_hidden_whole(text):
    assert "hunter2" not in redact(text)
    assert MASK in redact(text)


NAMES = st.sampled_from(["password", "auth", "API_KEY", "credentials", "x-auth-token", "Cookie", "myPin"])
# Every leaf has the mark by which it is recognized.
LEAVES = st.text(st.sampled_from("ab \\'\"()[]{}<>,;:=\n"), max_size=12).map(lambda text: f"{text}zq{text}")
HELD = st.recursive(
    LEAVES | LEAVES.map(str.encode),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(LEAVES, inner, min_size=1, max_size=2)
    ),
    max_leaves=6,
)


@given(NAMES, HELD, st.integers(0, 400))
def test_no_part_of_a_secret_value_survives_and_what_is_behind_it_does(name, value, cut):
    whole = repr({"n": 1, name: value, "to": "behind"})
    shown = redact(whole, 10_000)
    assert "zq" not in shown
    assert shown.endswith(", 'to': 'behind'}")
    assert "zq" not in redact(whole[:cut], 10_000)
    assert "zq" not in redact(repr((name, value)), 10_000)
    assert "zq" not in redact(repr([(name.encode(), value), 5]), 10_000)


PIECES = ["(", "'", "\\", "pass", "auth=(", "auth='\\'", "('pin', ", "cookie=; ", "pin"]


@pytest.mark.parametrize("piece", PIECES)
def test_a_text_that_is_made_to_take_long_is_passed_once(piece, monkeypatch):
    calls = []
    for name in ("_find_text_end", "_find_bracket_end", "_find_value_end"):
        plain = getattr(redaction, name)
        monkeypatch.setattr(redaction, name, lambda *given, _of=plain: calls.append(1) or _of(*given))
    counts = []
    for length in (4_000, 8_000):
        calls.clear()
        redact("auth=[" + piece * (length // len(piece)), 16_000)
        redact(piece * (length // len(piece)), 16_000)
        counts.append(len(calls))
    assert counts[1] <= 2.1 * counts[0] + 4


@given(st.text("abcdefghij0123456789", min_size=24, max_size=80).filter(lambda text: not text.isalpha()))
def test_a_long_token_is_hidden_wherever_it_stands(token):
    if any(each.isalpha() for each in token):
        assert token not in redact(f"('sent to', '{token}')")


def test_arguments_may_be_hidden_whole():
    assert format_arguments("(1, 'x')", "{'to': 'eve'}") == "(1, 'x') {'to': 'eve'}"
    assert format_arguments("(1, 'x')", "{}", HIDDEN) == "8 characters"
    assert format_arguments("()", "{}") == ""
    assert len(format_arguments("x" * 5_000, "")) <= 200
