"""Lines that Arrow reads come to the same events as one by one, and what is no event is taken for none."""

import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queues.events import lines as event_lines
from queues.events.lines import EventLines, build_plain_batch

NOW_US = 1_790_000_000_000_000
PLAIN = [
    {"time": 1.79e9 + at / 8, "type": "cpu", "source": "h", "key": f"core{at % 8}", "value": at / 7}
    for at in range(12_000)
]
TEXTS = st.one_of(st.none(), st.text(max_size=5), st.sampled_from(["", "\0", "é", "x" * 300]))
TIMES = st.one_of(
    st.none(),
    st.sampled_from(["2026-11-25T10:00:00Z", "2026-11-25T10:00:00", "2026-11-25", "25", "T"]),
    st.floats(0, 4e15),
    st.integers(-5, 2**70),
)
VALUES = st.one_of(st.none(), st.floats(), st.integers(-(2**70), 2**70), st.just("5"), st.just(True))
OBJECTS = st.fixed_dictionaries(
    {}, optional={"id": TEXTS, "type": TEXTS, "source": TEXTS, "key": TEXTS, "time": TIMES, "value": VALUES}
).map(json.dumps)
ALIKE = st.fixed_dictionaries({"type": st.text("ab", min_size=1), "value": st.floats(-9, 9)}).map(json.dumps)
HOSTILE = st.sampled_from(
    [
        "",
        " ",
        "{}",
        "[1]",
        '{"type": "a"}{"type": "b"}',
        '{"type": "a"} {"type": {}',
        '{"type": "a"',
        '"b": 1}',
        '{"type": "a", "type": "b"}',
        '{"\\u0074ype": "a"}',
        '{"type": "\\ud800"}',
        '{"value": NaN}',
        '{"value": 1e999}',
        '{"value": 01}',
        '{"value": -0}',
        '{"more": {"a": [1]}}',
        '{"attributes": {"a": 1}}',
        '{"type": "a"} \t',
        '{"type": "a"}\r',
        "{'type': 'a'}",
        '{"type": "a",}',
        '{"type": "a"}//',
        '\ufeff{"type": "a"}',
        "{" * 40 + "}" * 40,
    ]
)
TEXT = st.one_of(
    st.lists(ALIKE, min_size=1, max_size=4), st.lists(st.one_of(OBJECTS, HOSTILE), min_size=1, max_size=4)
).map(lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass"))


def line_by_line(text: bytes) -> tuple[list[dict], int]:
    """As it was read before there was a quicker way."""
    lines = EventLines(io.BytesIO(text), format="jsonl", clock=lambda: NOW_US / 1e6)
    lines._not_tried = 10**9
    return [row for batch in lines for row in batch.to_pylist()], lines.rejected


@given(TEXT)
@example(b'{"type": "a"}{"k\n": {}}')
@example(b'{"type": "\xff"}')
@example(b'{"type": "\xed\xa0\x80"}')
def test_what_is_read_at_once_is_what_each_line_says(text):
    try:
        batch = build_plain_batch(text, NOW_US)
    except event_lines._NOT_PLAIN:
        return
    assert (batch.to_pylist(), 0) == line_by_line(text)


@pytest.mark.parametrize("times", ["numbers", "texts", "none"])
def test_lines_of_an_events_own_fields_are_plain(times):
    form = {"numbers": 1.79e9, "texts": "2026-11-25T10:00:00.5Z", "none": None}[times]
    events = [{"type": "a", "value": 1, **({} if form is None else {"time": form})}, {"type": "b"}]
    events[1] |= {} if form is None else {"time": form}
    text = "\n".join(map(json.dumps, events)).encode()
    assert (build_plain_batch(text, NOW_US).to_pylist(), 0) == line_by_line(text)


@pytest.mark.parametrize("place", [0, 7_000, 11_999])
def test_one_bad_line_among_thousands_is_named_by_its_number_and_nothing_else_is_lost(place):
    texts = list(map(json.dumps, PLAIN))
    texts[place] = '{"value": "warm"}'
    lines = EventLines(io.BytesIO("\n".join(texts).encode()))
    assert sum(batch.num_rows for batch in lines) == len(PLAIN) - 1
    assert [each.line for each in lines.rejections] == [place + 1]


def test_lines_that_are_not_plain_are_not_tried_at_each_piece(monkeypatch):
    tried = []

    def refused(text: bytes, now_us: int) -> None:
        tried.append(len(text))
        raise ValueError

    monkeypatch.setattr(event_lines, "build_plain_batch", refused)
    monkeypatch.setattr(event_lines, "CHUNK_BYTES", 20_000)
    text = "\n".join(map(json.dumps, PLAIN)).encode()
    assert sum(batch.num_rows for batch in EventLines(io.BytesIO(text))) == len(PLAIN)
    assert len(tried) == -(-len(text) // 20_000 // 8)
