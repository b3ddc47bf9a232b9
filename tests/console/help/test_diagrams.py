"""Diagrams of the documentation: text to pictures."""

import pytest
from markdown import Markdown

from console.help.diagrams import Diagrams, draw, parse_arrows, rank_boxes


def test_a_box_stands_right_of_every_box_that_leads_to_it():
    arrows = parse_arrows("a -> b\nb -> d\na -> c\nc -> d\nd -> a: back")
    assert rank_boxes(arrows) == {"a": 0, "b": 1, "d": 2, "c": 1}


def test_labels_and_names_are_shown_as_text():
    picture = draw("<b> -> c: 1 < 2")
    assert "&lt;b&gt;" in picture and "1 &lt; 2" in picture and "<b>" not in picture


def test_a_line_that_is_no_arrow_is_named():
    with pytest.raises(ValueError, match="not 'a to b'"):
        draw("a to b")


def test_a_fence_becomes_a_picture_and_other_code_stays():
    text = "Words.\n\n```diagram\na -> b\n```\n\n```\na -> b\n```\n"
    html = Markdown(extensions=[Diagrams(), "fenced_code"]).convert(text)
    assert html.count("<svg") == 1 and "<code>a -&gt; b" in html
