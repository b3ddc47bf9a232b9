"""What is shown of arguments and errors: enough to know the task, and no secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.plants.foreign.redaction import HIDDEN, MASK, arguments, redacted

SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "{'password': 'hunter2-hunter2'}",
        '{"api_key": "hunter2-hunter2", "n": 1}',
        "{'user': 'eve', 'auth_token': 'hunter2-hunter2'}",
        'ValueError("secret=hunter2-hunter2 is wrong")',
        "postgres://eve:hunter2-hunter2@db/shop",
        "{'PASSWORD': 'hunter2-hunter2",  # the event shortened it
    ],
)
def test_what_is_secret_by_its_name_or_place_is_hidden(text):
    assert SECRET not in redacted(text)
    assert MASK in redacted(text)


@given(st.text("abcdefghij0123456789", min_size=24, max_size=80).filter(lambda text: not text.isalpha()))
def test_a_long_token_is_hidden_wherever_it_stands(token):
    if any(each.isalpha() for each in token):
        assert token not in redacted(f"('sent to', '{token}')")


def test_ids_paths_and_numbers_stay():
    plain = "(17, 'order-9', '8ae73293-6de5-4bd8-8944-53ac8b75c537', '/srv/shop/lib/python3.11/tasks.py')"
    assert redacted(plain) == plain


def test_arguments_may_be_hidden_whole():
    assert arguments("(1, 'x')", "{'to': 'eve'}") == "(1, 'x') {'to': 'eve'}"
    assert arguments("(1, 'x')", "{}", HIDDEN) == "8 characters"
    assert arguments("()", "{}") == ""
    assert len(arguments("x" * 5_000, "")) <= 200
