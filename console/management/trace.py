"""A trace of real arrivals: one column of a CSV file, compressed or not."""

import csv
import gzip
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from queues.errors import BadInput


def read_trace(path: str, column: str | None) -> npt.NDArray[np.float64]:
    """The column's numbers, a row each. Raises `BadInput` naming file, column or line."""
    try:
        text = _text(Path(path))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadInput("--trace", f"{path} can't be read ({error}); give a CSV file, .gz too") from error
    rows = csv.DictReader(text.splitlines())
    names = rows.fieldnames or []
    if column is None or column not in names:
        raise BadInput("--column", f"takes one of {', '.join(names) or 'no columns'}, not {column}")
    values = [_number(row[column], rows.line_num, column) for row in rows]
    if not values or min(values) < 0 or max(values) <= 0:
        raise BadInput("--trace", "takes numbers from 0 up, at least one of them above 0")
    return np.array(values)


def _text(path: Path) -> str:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return file.read()
    return path.read_text(encoding="utf-8")


def _number(text: str | None, line: int, column: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput("--trace", f"line {line}: {column} takes a finite number, not {text!r}")
    return value
