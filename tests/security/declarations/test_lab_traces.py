"""A trace that somebody uploads for the lab costs what its size says, however it is written."""

import gzip
from io import BytesIO

import pytest
from django.contrib.auth.models import User

from common.errors import BadInput
from console.accounts.access import Actor
from console.actions.lab.traces import MAX_TRACE_BYTES, MAX_TRACE_LINES, save_upload

PERSON = Actor("ada", "operator", user=User(pk=7, username="ada"))
MANY = MAX_TRACE_LINES + 1
BOMBS = {
    "lines that end as on Unix": b"rate\n" + b"1\n" * MANY,
    "lines that end as on an old Mac": b"rate\r" + b"1\r" * MANY,
    "lines that end as on Windows": b"rate\r\n" + b"1\r\n" * MANY,
    "empty lines": b"rate\r" + b"\r" * MANY,
    "columns": b"rate," + b",".join(b"%d" % number for number in range(300)) + b"\n1\n",
    "many columns and many short lines": b"rate," + b"a," * 1_000_000 + b"\n" + b"1\n" * 100_000,
    "bytes": b"rate\n" + b"1" * MAX_TRACE_BYTES,
    "a column without an end": b'"' + b"x" * 200_000,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.timeout(60)
def test_a_trace_that_costs_more_than_its_size_is_refused(bomb, pack, tmp_path):
    name = "t.csv" if pack is bytes else "t.csv.gz"
    with pytest.raises(BadInput) as refused:
        save_upload(tmp_path, name, BytesIO(pack(bomb)), "rate", PERSON)
    assert refused.value.field in ("trace", "column")
    assert list(tmp_path.glob("traces/*/*")) == []


def test_bytes_that_unpack_to_gigabytes_are_refused_after_four_megabytes(tmp_path):
    packed = gzip.compress(b"\0" * (64 * 2**20))
    with pytest.raises(BadInput, match="decompresses to more than 4 MiB"):
        save_upload(tmp_path, "t.csv.gz", BytesIO(packed), "rate", PERSON)


@pytest.mark.parametrize("line_break", [b"\n", b"\r", b"\r\n"])
def test_a_trace_of_any_system_is_read(line_break, tmp_path):
    text = line_break.join([b'at,"ra', b'te",rate', b"0,1,2", b"1,1,3"]) if line_break == b"\n" else None
    text = text or line_break.join([b"at,rate", b"0,2", b"1,3"])
    assert save_upload(tmp_path, "t.csv", BytesIO(text), "rate", PERSON).values.tolist() == [2.0, 3.0]
