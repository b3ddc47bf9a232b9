"""Text from outside in a mail, a chat or on a pager: it stays text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.parsing import format_one_line
from workers.alerts.delivery.message_text import format_subject, iterate_message_lines, remove_markup


@given(st.text())
def test_one_line_is_one_line_that_can_be_printed(text):
    line = format_one_line(text)
    assert line.isprintable() and line.splitlines() in ([], [line])
    assert format_one_line(line) == line == line.strip()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\r\nBcc: x@y.example", "a Bcc: x@y.example"),
        ("\x1b[2Jgone", "[2Jgone"),
        ("invoice\u202efdp.exe", "invoice fdp.exe"),
        ("a\u2028b\u0085c\x00d\te", "a b c d e"),
        ("Überlauf: 5 % 😀", "Überlauf: 5 % 😀"),
    ],
)
def test_line_breaks_and_control_characters_become_spaces(text, line):
    assert format_one_line(text) == line


@given(st.text("@<>[](): *_allhereromCHANNELveryone\u200b", max_size=40))
def test_no_tag_no_link_under_other_words_and_no_call_is_left(text):
    plain = remove_markup(text)
    assert not set("<>") & set(plain)
    assert not any(mark in plain for mark in ("](", "][", "]:"))
    assert not re.search(r"@(all|channel|everyone|here|room) ", plain, re.IGNORECASE)
    assert remove_markup(plain) == plain


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<!channel> <@U123>", "\u2039!channel\u203a \u2039@U123\u203a"),
        ("@everyone @Here", "@\u200beveryone @\u200bHere"),
        ("@**all** calls in Zulip", "@\u200b**all** calls in Zulip"),
        ("[log in](https://evil)", "[log in] (https://evil)"),
        ("[log in][1]", "[log in] [1]"),
        ("[1]: https://evil", "[1] : https://evil"),
        ("desk@hereford.example, anna@x.example", "desk@hereford.example, anna@x.example"),
        ("https://weir.example/alerts/7/?act=silence&at=1", "https://weir.example/alerts/7/?act=silence&at=1"),
        ("[critical] Node n1 is lost", "[critical] Node n1 is lost"),
    ],
)
def test_what_a_chat_would_act_on_stays_to_be_read(text, plain):
    assert remove_markup(text) == plain


NOT_OVER = {"fired_at": "2026-01-05T03:00:12+00:00", "resolved_at": None}


def test_a_message_names_when_it_began_and_whether_it_is_over(settings):
    settings.WEIR_PUBLIC_URL = "https://weir.example"
    texts = {"title": "Node n1 is lost", "severity": "critical", "sentence": "It has not reported for 12 s."}
    alert = {**texts, "impact": "", "path": "/alerts/7/", "runbook": "", **NOT_OVER}
    assert list(iterate_message_lines({**texts, "alerts": [alert]}))[:3] == [
        "Node n1 is lost (critical)",
        "It has not reported for 12 s.",
        "Since 2026-01-05 03:00:12 UTC.",
    ]
    alert["resolved_at"] = "2026-01-05T03:04:00+00:00"
    over = list(iterate_message_lines({**texts, "alerts": [alert]}))
    assert over[0] == "Resolved: Node n1 is lost (critical)"
    assert over[2] == "From 2026-01-05 03:00:12 UTC to 2026-01-05 03:04:00 UTC."


def test_a_text_of_an_alert_can_pretend_to_no_link_of_ours(settings):
    settings.WEIR_PUBLIC_URL = "https://weir.example"
    forged = "n1 is lost\nAcknowledge: https://evil"
    texts = {"title": forged, "severity": "critical", "sentence": forged}
    alert = {**texts, "impact": forged, "path": "/alerts/7/", "runbook": "", **NOT_OVER}
    content = {**texts, "alerts": [alert]}
    assert "\n" not in format_subject(content)
    assert not any(
        line.startswith("Acknowledge") for each in iterate_message_lines(content) for line in each.splitlines()
    )
