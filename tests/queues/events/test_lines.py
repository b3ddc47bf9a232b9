"""Event files: what is read, what is refused and named, and that the quick way and the careful way agree."""

import csv
import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput, MalformedEvent
from queues.events.columns import Columns
from queues.events.lines import EventLines, JsonLines, format_of, open_events

NOW = 1_790_000_000.0


def read(text: str | bytes, **options) -> tuple[list[dict], EventLines]:
    data = text.encode() if isinstance(text, str) else text
    lines = EventLines(io.BytesIO(data), clock=lambda: NOW, **options)
    return [row for batch in lines for row in batch.to_pylist()], lines


def test_csv_columns_are_mapped_and_the_rest_become_attributes():
    text = "time_us,job_id,event_type,user\n5,34,0,u1\n6,35,1,\n"
    rows, lines = read(text, columns=Columns(time="time_us", type="event_type", key="job_id"))
    assert [(row["type"], row["key"], row["attributes"]) for row in rows] == [
        ("0", "34", '{"user":"u1"}'),
        ("1", "35", '{"user":null}'),
    ]
    assert [row["time"].microsecond for row in rows] == [5, 6]
    assert lines.rejected == 0


def test_a_relative_time_column_that_nobody_named_leaves_the_event_time_now():
    rows, _ = read("time_us,v\n0,1\n", columns=Columns(value="v"))
    assert rows[0]["time"].timestamp() == NOW
    assert rows[0]["value"] == 1.0
    assert rows[0]["attributes"] == '{"time_us":"0"}'


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("at_us", "1790000000000000"),
        ("at_ms", "1790000000000"),
        ("at_s", "1790000000"),
        ("at", "1790000000"),
        ("at", "1790000000.0"),
        ("at", "1790000000000"),
        ("at", "1790000000000000"),
        ("at", "2026-09-21T14:13:20Z"),
        ("at", "2026-09-21T14:13:20"),
        ("at", "2026-09-21 14:13:20.000"),
        ("at", "2026-09-21T16:13:20+02:00"),
    ],
)
def test_times_are_understood_by_the_columns_name_or_their_size(column, cell):
    rows, lines = read(f"{column},k\n{cell},a\n{cell},b\n", columns=Columns(time=column))
    assert [row["time"].timestamp() for row in rows] == [NOW, NOW], lines.rejections


def test_json_lines_take_objects_and_extra_keys_become_attributes():
    rows, _ = read('{"id":"a","type":"x","value":1,"attributes":{"n":1},"room":7}\n\n{"id":"b","key":5}\n')
    assert (rows[0]["value"], json.loads(rows[0]["attributes"])) == (1.0, {"n": 1, "room": 7})
    assert (rows[1]["id"], rows[1]["key"], rows[1]["attributes"]) == ("b", "5", None)


def test_each_malformed_json_line_is_named_and_the_others_are_kept():
    bad = ['{"value": "warm"}', "{", "[1]", '{"time": "yesterday"}', '{"value": 1e999}', '{"attributes": 4}']
    text = "\n".join(line for each in bad for line in ('{"id": "good"}', each))
    rows, lines = read(text)
    assert [row["id"] for row in rows] == ["good"] * len(bad)
    assert [rejection.line for rejection in lines.rejections] == [2, 4, 6, 8, 10, 12]
    assert "value" in lines.rejections[0].error
    assert "JSON" in lines.rejections[1].error
    assert "time" in lines.rejections[3].error


def test_each_malformed_csv_line_is_named_and_the_others_are_kept():
    text = b'id,value\na,1\nb,1,2\nc,warm\n"d,4\ne,5\n\xff,6\nf,7\n'
    rows, lines = read(text)
    assert [row["id"] for row in rows] == ["a", "e", "f"]
    assert [rejection.line for rejection in lines.rejections] == [3, 4, 5, 7]
    assert "has 3 cells. The header has 2" in lines.rejections[0].error


def test_a_time_beyond_all_numbers_is_named_and_the_others_are_kept():
    rows, lines = read("ts_s,k\n1e305,a\n1,b\n", columns=Columns(time="ts_s"))
    assert len(rows) == 1 and [rejection.line for rejection in lines.rejections] == [2]


def test_only_the_first_twenty_are_named_but_all_are_counted():
    _, lines = read("id\n" + "a,b\n" * 50)
    assert (lines.rejected, len(lines.rejections)) == (50, 20)


def test_strict_stops_at_the_first_malformed_line_and_names_it():
    with pytest.raises(MalformedEvent, match=r"line 3: value"):
        read('{"id": "a"}\n{"id": "b"}\n{"value": []}\n', strict=True)


def test_a_quoted_cell_may_hold_commas_quotes_and_line_breaks():
    rows, lines = read('id,note\na,"x, ""y""\nz"\nb,plain\n')
    assert json.loads(rows[0]["attributes"]) == {"note": 'x, "y"\nz'}
    assert [row["id"] for row in rows] == ["a", "b"]
    assert lines.rejected == 0


def test_a_line_that_is_far_too_long_is_refused_and_the_next_one_read():
    rows, lines = read(b'{"id": "' + b"x" * 3_000_000 + b'"}\n{"id": "b"}\n', format="jsonl")
    assert [row["id"] for row in rows] == ["b"]
    assert [(rejection.line, "bytes" in rejection.error) for rejection in lines.rejections] == [(1, True)]


def test_gzip_is_unpacked_and_a_broken_one_is_refused():
    packed = gzip.compress(b'{"id": "a"}\n' * 10_000)
    assert len(read(packed)[0]) == 10_000
    with pytest.raises(BadInput, match="file: can't be read to its end"):
        read(packed[: len(packed) // 2])


@pytest.mark.parametrize("header", ["id,id", "id,,x", "a"])
def test_a_header_that_cannot_serve_is_refused_by_name(header):
    with pytest.raises(BadInput, match=r"header|key"):
        read(f"{header}\n1,2,3\n", columns=Columns(key="missing"), format="csv")


def test_an_unknown_format_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(BadInput, match="format: must be csv or jsonl"):
        read("", format="xml")
    with pytest.raises(BadInput, match=r"file: .*nothing.csv can't be read"):
        open_events(str(tmp_path / "nothing.csv"))


def test_an_empty_file_is_no_event():
    assert read("")[0] == []
    assert read("id,value\n")[0] == []


def test_the_name_of_a_file_says_its_format():
    assert format_of("a.csv.gz") == format_of("b.csv") == "csv"
    assert format_of("a.jsonl") == format_of("b.ndjson.gz") == "jsonl"
    assert format_of("-") is None


@pytest.mark.parametrize("before", ["\ufeff", "\n", "\ufeff\r\n \n", "\n" * 2**20])
@pytest.mark.parametrize("text", ['{"id": "a"}\n{"id": "b"}\n', "id\na\nb\n"])
def test_a_byte_order_mark_and_blank_lines_before_the_first_change_nothing(before, text):
    rows, lines = read(before + text)
    assert [row["id"] for row in rows] == ["a", "b"] and lines.rejected == 0


def test_lines_are_counted_from_the_files_first_one_also_where_it_is_blank():
    assert [each.line for each in read('\n\n{"id": "a"}\n{')[1].rejections] == [4]


def test_a_closed_standard_input_is_named(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(BadInput, match="file: standard input is closed"):
        open_events("-")


def test_windows_line_ends_are_line_ends():
    rows, _ = read("id,value\r\na,1\r\nb,2\r\n")
    assert [(row["id"], row["value"]) for row in rows] == [("a", 1.0), ("b", 2.0)]


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(["1", "2026-01-01T00:00:00Z", "2026-01-01", "1e3", " 5 ", "٣"]),
    st.dictionaries(st.text(max_size=3), st.integers(-5, 5), max_size=2),
)
OBJECTS = st.dictionaries(
    st.sampled_from(["id", "time", "type", "source", "key", "value", "attributes", "more"]), CELLS
)


@given(st.lists(OBJECTS, min_size=1, max_size=4))
def test_many_lines_at_once_come_to_the_same_events_as_line_by_line(documents):
    text = "\n".join(map(json.dumps, documents))
    together, lines = read(text, format="jsonl")
    alone = [row for document in documents for row in read(json.dumps(document), format="jsonl")[0]]
    assert together == alone
    assert lines.rejected == len(documents) - len(alone)


@given(st.lists(st.lists(st.text(max_size=6), min_size=3, max_size=3), max_size=5))
def test_csv_that_python_wrote_is_read_back_cell_by_cell(cells):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([["id", "note", "other"], *cells])
    readable = [row for row in cells if not any(char in "".join(row) for char in "\r\n\0")]
    if len(readable) < len(cells):
        return
    rows, lines = read(out.getvalue(), format="csv")
    assert lines.rejected == 0
    assert [row["id"] or "" for row in rows] == [row[0] for row in cells]
    notes = [json.loads(row["attributes"]) for row in rows]
    assert [[note["note"] or "", note["other"] or ""] for note in notes] == [row[1:] for row in cells]


def test_plain_lines_take_the_quick_way(monkeypatch):
    """What is fast in the bench must not fall back to reading line by line unnoticed."""

    def refuse(*_: object) -> None:
        raise AssertionError("read line by line")

    monkeypatch.setattr(JsonLines, "parse", refuse)
    text = '{"time": 1790000000.5, "type": "cpu", "source": "h", "key": "core0", "value": 0.5}\n' * 100
    assert len(read(text)[0]) == 100
