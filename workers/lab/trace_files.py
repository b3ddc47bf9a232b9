"""Columns of numbers in a CSV file, compressed or not: a trace of real arrivals, or recordings of a plant.

Commands that read such files don't need Django's applications, so this module doesn't either.
"""

import csv
import gzip
import math
import zlib
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TypeAlias

import numpy as np

from common.documents import decode_text, get_standard_input
from common.errors import BadInput
from common.parsing import describe_separator, parse_decimal_number
from controllers.simulation.scenario import Floats

# A row costs as much as it has columns, even if it contains one value.
MAX_COLUMNS = 256
Rows: TypeAlias = "csv.DictReader[str]"


def read_trace(path: str, column: str | None) -> Floats:
    """Return the column's numbers, one for each row. Raises `BadInput` that names file, column, or line."""
    rows = _read_rows(path, "--trace")
    names, wanted = rows.fieldnames or [], (column or "").strip()
    if not wanted or names.count(wanted) != 1:
        hint = describe_separator(names[0]) if len(names) == 1 else ""
        raise BadInput(
            "--column", f"must be the name of exactly one column in the file's first line, not {column}{hint}"
        )
    values = read_numbers(rows, (wanted,), "--trace")[0]
    if not values.size or values.min() < 0 or values.max() <= 0:
        raise BadInput("--trace", "must have numbers of at least 0, with at least one number above 0")
    return values


def read_columns(path: str, names: Sequence[str]) -> list[Floats]:
    """Return the named columns' numbers, from a file or for `-` from standard input.

    Raises `BadInput` that names file, column, or line.
    """
    rows = _read_rows(path, "FILE")
    columns = rows.fieldnames or []
    for name in names:
        if name not in columns:
            hint = describe_separator(columns[0]) if len(columns) == 1 else ""
            raise BadInput(name, f"is not a column of the file; the first line must have the column names{hint}")
        if columns.count(name) > 1:
            raise BadInput(name, "is the name of two columns; names must differ")
    return read_numbers(rows, names, "FILE")


def read_numbers(rows: Rows, names: Sequence[str], field: str) -> list[Floats]:
    """Return the named columns, all finite numbers. Raises `BadInput` that names the line and the column."""
    try:
        values = [[_parse_number(row[name], rows.line_num, name, field) for name in names] for row in rows]
    except csv.Error:
        raise BadInput(field, f"line {rows.line_num} is not CSV") from None
    return list(np.array(values, dtype=float).reshape(-1, len(names)).T)


def _read_rows(path: str, field: str) -> Rows:
    try:
        text = get_standard_input(field).read() if path == "-" and field == "FILE" else _read_text(Path(path))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text, or not gzip"
        raise BadInput(field, f"{path} can't be read ({why}); give a CSV file, optionally compressed as .gz") from None
    # Lines as csv defines them: str.splitlines has more kinds, which were not counted.
    rows = csv.DictReader(StringIO(text.removeprefix("\ufeff"), newline=""))
    try:
        rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
    except csv.Error:
        raise BadInput(field, "line 1 is not CSV") from None
    if len(rows.fieldnames) > MAX_COLUMNS:
        raise BadInput(field, f"has {len(rows.fieldnames):,} columns; the maximum is {MAX_COLUMNS}")
    return rows


def _read_text(path: Path) -> str:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return decode_text(file.read())


def _parse_number(text: str | None, line: int, column: str, field: str) -> float:
    value = parse_decimal_number(text or "")
    if value is None or not math.isfinite(value):
        raise BadInput(field, f"line {line}: {column} must be a finite number")
    return value
