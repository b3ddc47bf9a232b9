"""Times of events as OpenTelemetry, EdgeX and spreadsheets write them, in four units and as text."""

import io
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from common.errors import MalformedEvent
from queues.events import block
from queues.events.block import convert_number_to_us, convert_numbers_to_us
from queues.events.columns import Columns
from queues.events.lines import EventLines

NOW = 1_700_000_000.0
TIME_US = 1_796_000_000_123_456
UNITS = {"s": 1_796_000_000.123456, "ms": 1_796_000_000_123.456, "us": TIME_US, "ns": 1_796_000_000_123_456_789}


def read(text: str, **named: Any) -> EventLines:
    return EventLines(io.BytesIO(text.encode()), clock=lambda: NOW, **named)


def times_of(batches: Any) -> list[int]:
    return [each for batch in batches for each in batch.column("time").cast(pa.int64()).to_pylist()]


@pytest.mark.parametrize("unit", UNITS)
def test_a_number_is_a_time_in_the_unit_that_its_size_says(unit):
    line = orjson.dumps({"type": "a", "time": UNITS[unit]}).decode()
    assert times_of(read(f"{line}\n{line}\n")) == [TIME_US] * 2
    assert times_of(read(f'{line[:-1]},"more":1}}\n')) == [TIME_US]
    assert times_of(read(f"type,time\na,{UNITS[unit]}\n")) == [TIME_US]
    assert times_of([block.from_events([{"type": "a", "time": UNITS[unit]}], 0)]) == [TIME_US]
    column = pa.RecordBatch.from_pydict({"time": [UNITS[unit], None]})
    assert times_of([block.from_columns(column, 7)]) == [TIME_US, 7]


@pytest.mark.parametrize("unit", UNITS)
def test_a_column_names_its_unit(unit):
    name = f"at_{unit}"
    columns = Columns(time=name)
    assert times_of(read(f"type,{name}\na,{UNITS[unit]}\nb,{UNITS[unit]}\n", columns=columns)) == [TIME_US] * 2
    line = orjson.dumps({"type": "a", name: UNITS[unit]}).decode()
    assert times_of(read(f"{line}\n", columns=columns)) == [TIME_US]


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30T12:53:20.123456789Z",
        "2026-11-30T13:53:20.123456789+01:00",
        "2026-11-30 12:53:20.123456789",
        "2026-11-30T12:53:20.1234567Z",
    ],
)
def test_a_text_may_have_nine_digits_of_a_second(text):
    assert times_of(read(f'{{"type":"a","time":"{text}"}}\n')) == times_of(read(f"type,time\na,{text}\n"))
    assert times_of(read(f"type,time\na,{text}\n"))[0] % 1_000_000 == 123_456


@pytest.mark.parametrize("given", [18_446_744_073_709_551_615, -5, 7_258_118_400, 10**16])
def test_a_refusal_quotes_what_was_given(given):
    for text in (f'{{"type":"a","time":{given}}}\n', f"type,time\na,{given}\n"):
        lines = read(text)
        assert times_of(lines) == []
        [rejection] = lines.rejections
        assert str(given) in rejection.error


@pytest.mark.parametrize("text", ["1_796_000_000", "\uff11\uff17\uff19\uff16", "1,796", "0x6B0C"])
def test_what_is_no_number_is_no_time(text):
    lines = read(f'type,time\na,"{text}"\n')
    assert times_of(lines) == [] and len(lines.rejections) == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1, 7_258_118_400, 10**16, 2**63 - 1, 1e300])
@pytest.mark.parametrize("unit", [None, 1_000_000_000])
def test_a_time_out_of_range_is_refused_and_never_wraps_around(number, unit):
    with pytest.raises(ValueError):
        convert_number_to_us(number, unit)
    kind = np.int64 if isinstance(number, int) else np.float64
    try:
        found = convert_numbers_to_us(np.array([number], kind), unit)
    except ValueError:
        return
    assert found[0] < 0, "negative times are refused with the batch"
    with pytest.raises(MalformedEvent):
        block.from_columns(pa.RecordBatch.from_pydict({"time": [number]}), 0)
