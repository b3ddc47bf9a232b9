"""CSV files as spreadsheets and databases write them: their separators, headers, marks and decimal commas."""

import gzip
import io
from typing import Any

import pytest

from common.errors import BadInput
from queues.events.lines import EventLines
from workers.lab.trace_files import read_trace

TIME = "2026-11-29T08:00:00Z"


def read(text: str | bytes, **named: Any) -> tuple[list[dict[str, Any]], EventLines]:
    data = text.encode() if isinstance(text, str) else text
    lines = EventLines(io.BytesIO(data), format="csv", clock=lambda: 0.0, **named)
    return [row for batch in lines for row in batch.to_pylist()], lines


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", ["time type key value", "Time Type Key Value", "TIME TYPE KEY VALUE"])
@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_header_is_read_in_every_form(separator, header, quote, mark, end):
    names = separator.join(f"{quote}{name}{quote}" for name in header.split())
    row = separator.join(f"{quote}{cell}{quote}" for cell in (TIME, "login", "ann", "1.5"))
    [event], lines = read(f"{mark}{names}{end}{row}{end}")
    assert (event["type"], event["key"], event["value"], event["attributes"]) == ("login", "ann", 1.5, None)
    assert event["time"].isoformat() == "2026-11-29T08:00:00+00:00"
    assert lines.rejected == 0
    assert lines.csv_columns.parts["type"] == header.split()[1]
    assert lines.csv_columns.separator == separator


@pytest.mark.parametrize("header", ["a,b,c", "a;b;c", "zeit;typ;schl\u00fcssel", "timestamp", "time type key"])
def test_a_header_without_a_part_of_an_event_is_refused_with_what_to_do(header):
    with pytest.raises(BadInput, match="has no column for an event field") as refused:
        read(f"{header}\n1,2,3\n")
    assert "--type COL" in refused.value.message and header[:4].split(";")[0][:1] in refused.value.message


@pytest.mark.parametrize("header", ["time type key", "a:b"])
def test_a_header_in_another_separator_is_refused_by_its_names(header):
    with pytest.raises(BadInput, match=header):
        read(f"{header}\n1 2 3\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("type;value\na;1,5\n", 1.5),
        ("type\tvalue\na\t-0,25\n", -0.25),
        ('type,value\na,"1.5"\n', 1.5),
        ("type;value\na;1.5\n", 1.5),
    ],
)
def test_a_decimal_comma_is_read_where_no_comma_separates(text, value):
    [event], _ = read(text)
    assert event["value"] == value


@pytest.mark.parametrize(
    "text", ['type,value\na,"1,5"\n', "type;value\na;1.234,5\n", "type;value\na;1_000\n", "type;value\na;\uff11\n"]
)
def test_what_is_no_number_is_named_and_never_guessed(text):
    events, lines = read(text)
    assert events == [] and lines.rejections[0].line == 2 and "value" in lines.rejections[0].error


TRACES = {
    "BOM and CRLF": ("\ufefft,rate\r\n0,5\r\n1,7\r\n", [5.0, 7.0]),
    "quoted cells": ('"t","rate"\n"0","5"\n"1","7"\n', [5.0, 7.0]),
    "an empty cell": ("t,rate\n0,\n", "line 2: rate"),
    "NaN": ("t,rate\n0,5\n1,NaN\n", "line 3: rate"),
    "a negative number": ("t,rate\n0,-1\n", "numbers of at least 0"),
    "zeros alone": ("t,rate\n0,0\n", "above 0"),
    "semicolons": ("t;rate\n0;5\n", "separated by semicolons"),
    "underscores": ("t,rate\n0,1_000\n", "line 2: rate"),
    "full-width digits": ("t,rate\n0,\uff11\n", "line 2: rate"),
}


@pytest.mark.parametrize(("text", "found"), TRACES.values(), ids=TRACES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_is_read_or_refused_by_line_or_column(text, found, packed, tmp_path):
    file = tmp_path / ("trace.csv.gz" if packed else "trace.csv")
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    if isinstance(found, list):
        assert read_trace(str(file), "rate").tolist() == found
        return
    with pytest.raises(BadInput, match=found):
        read_trace(str(file), "rate")
