"""Write CSV that no spreadsheet interprets as formulas.

A spreadsheet runs a cell that starts with one of = + - @. Which text is one cell depends on the reader's locale: many
split at a semicolon or a tab, where a comma and its quotes mean nothing. Text is therefore marked with an apostrophe at
the start of a cell and after every character at which some locale splits.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from numbers import Number
from typing import Any

import orjson

# Also in full width, which spreadsheets of some languages interpret in the same way.
_BEGINS_FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20"
_SPLITS = ";|\t\r\n\x0b\x0c\x1c-\x1f\x85\u2028\u2029"
# Characters that a spreadsheet drops before it checks the first character of a cell.
_DROPPED = ' "\t\r\n\x00\u00a0\u200b\u3000\ufeff'
# Java interprets it in the same way: Spark marks its CSV with it, and with MARKED.
FORMULA = f"(^(?=[\t\r\n])|(?:^|[{_SPLITS}])(?=[{_DROPPED}]*[{_BEGINS_FORMULA}]))"
_FORMULA = re.compile(FORMULA)
_PLAIN_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?\Z", re.ASCII)


def mark_formulas(text: str) -> str:
    """Return text that is no formula, and has none after a separator. Numbers stay as they are."""
    return text if _PLAIN_NUMBER.match(text) else _FORMULA.sub(r"\1'", text)


def iterate_csv_text(header: Sequence[str], pages: Iterable[Iterable[Sequence[Any]]]) -> Iterator[str]:
    """Return a table as CSV text, a page of rows at a time."""
    yield _format_rows([header])
    for page in pages:
        yield _format_rows(page)


def _format_rows(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([_format_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _format_cell(value: Any) -> Any:
    """Return documents as JSON, times as ISO 8601, and text without formulas."""
    if value is None or isinstance(value, Number):
        return value
    if isinstance(value, dict | list):
        return mark_formulas(orjson.dumps(value).decode())
    return mark_formulas(value.isoformat() if isinstance(value, datetime) else str(value))
