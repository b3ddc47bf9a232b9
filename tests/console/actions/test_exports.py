"""Exports: one gzip member whatever the pieces, and who took how much stands in the audit."""

import csv
import gzip
import io
import re
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.accounts.access import Actor
from console.actions import exports
from console.audit import audit_log
from console.models import AuditEntry
from console.web.compression import Member, takes_gzip


@given(st.lists(st.binary(max_size=3_000)), st.text("0123456789abcdef", max_size=100))
def test_the_pieces_are_one_member(pieces, padding):
    member = Member(padding)
    packed = b"".join([member.begin(), *map(member.add, pieces), member.end()])
    reader = zlib.decompressobj(zlib.MAX_WBITS | 16)
    assert reader.decompress(packed) == b"".join(pieces) == gzip.decompress(packed)
    assert reader.eof and reader.unused_data == b""


def test_a_piece_can_be_read_as_soon_as_it_is_there():
    member, reader = Member(), zlib.decompressobj(zlib.MAX_WBITS | 16)
    reader.decompress(member.begin())
    assert reader.decompress(member.add(b"the first row")) == b"the first row"


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [("gzip", True), ("gzip;q=0", False), ("gzip; q=0.000", False), ("", False), ("not-gzip", False)],
)
def test_gzip_is_sent_to_those_who_take_it(accepted, taken):
    assert takes_gzip(accepted) is taken


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("address", "what", "rows"),
    [
        ("/api/v1/audit/export?format=csv&actor=desk-2", "export.audit", 3),
        ("/api/v1/audit/export?format=json&actor=desk-2", "export.audit", 3),
        ("/api/v1/ledger/export?law=tcc", "export.ledger", 0),
        ("/alerts/review/?format=csv", "export.alert-review", 0),
        ("/timeline/table.csv?what=events", "export.timeline-events", 3),
    ],
)
def test_who_exports_what_and_how_many_rows_is_noted(address, what, rows, browsers, control):
    for number in range(3):
        audit_log.record(Actor("desk-2", "operator"), "mark.add", f"mark {number}")
    if "timeline" in address:
        from datetime import timedelta

        from django.utils import timezone

        from console.models import Mark

        for minutes in (1, 2, 3):
            at = timezone.now() - timedelta(minutes=minutes)
            Mark.objects.create(kind="note", title="a mark", at=at, author="desk-2")
    browsers["administrator"].get(address).getvalue()
    begin, end = AuditEntry.objects.filter(action__startswith="export.").order_by("id")
    assert (begin.actor, begin.action, end.action) == ("administrator", what, f"{what}.end")
    query = dict(part.split("=") for part in address.partition("?")[2].split("&"))
    assert begin.after["filter"] == query
    assert end.after == {"rows": rows, "whole": True}
    assert begin.request_id == end.request_id and begin.address == "127.0.0.1"


@pytest.mark.django_db(transaction=True)
def test_an_export_that_is_cut_says_so(browsers, control):
    audit_log.record(Actor("desk-2", "operator"), "mark.add", "a mark")
    answer = browsers["administrator"].get("/api/v1/audit/export?format=csv")
    pieces = iter(answer.streaming_content)
    next(pieces)  # the header
    next(pieces)
    answer.close()
    end = AuditEntry.objects.get(action="export.audit.end")
    assert end.after["whole"] is False


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\t", "\r", "\n"])
def test_no_cell_of_a_table_is_a_formula_in_any_language(begin):
    _, *rows = csv.reader(io.StringIO("".join(exports.iterate_csv_text(["why"], [[[f"{begin}1+1"], ["a=1"]]]))))
    assert rows == [[f"'{begin}1+1"], ["a=1"]]


# What a locale may take for two cells.
SPLIT = (
    "a;=1+1", "a;@SUM(1)", "a\t=1+1", "a|-2+3", "a;+1+1", "a;\u00a0=1+1", 'a;"=1+1"', "a\r\n=1+1", "a\u2028=1+1",
    "a;\uff1d1+1", "; ;=1+1;\t@x", " =1+1", '"=1+1"', "\ufeff=1+1",
)  # fmt: skip


@pytest.mark.parametrize("text", SPLIT)
@pytest.mark.parametrize("kind", [str, lambda text: [text], lambda text: {text: {"why": text}}])
def test_no_part_of_a_cell_is_a_formula_wherever_a_locale_splits_it(text, kind):
    written = "".join(exports.iterate_csv_text(["why", "more"], [[[kind(text), "x"]]]))
    for separator in ",;\t|":
        for row in csv.reader(io.StringIO(written), delimiter=separator):
            for cell in row:
                assert not cell.strip(' "\t\r\n\u00a0\ufeff').startswith(("=", "+", "-", "@", "\uff1d")), cell


def test_plain_text_and_numbers_are_written_as_they_are():
    values = ["a;b = c", "a=1", "x; 5", "-1.5", "+3", "1e-05", "a, -b", -2, 1.5, None, True]
    _, row = csv.reader(io.StringIO("".join(exports.iterate_csv_text(["a"], [[values]]))))
    assert row == ["a;b = c", "a=1", "x; 5", "-1.5", "+3", "1e-05", "a, -b", "-2", "1.5", "", "True"]


def test_every_csv_is_written_by_one_writer():
    """`csv.writer` or a joined line of one's own would forget to mark formulas."""
    root = Path(__file__).resolve().parents[3]
    found = [
        path.relative_to(root).as_posix()
        for package in ("common", "queues", "controllers", "workers", "console")
        for path in (root / package).rglob("*.py")
        if re.search(r"csv\.(writer|DictWriter)\b|\.to_csv\(|write_csv\(", path.read_text(encoding="utf-8"))
    ]
    # The extract's rates are numbers, its events are marked by Spark.
    assert sorted(found) == ["common/files.py", "workers/batch/jobs/spark/extract.py"]
