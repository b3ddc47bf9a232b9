"""The maximum number of rows in an answer."""

from common.errors import BadInput

MAX_ROWS = 500


def check_rows(rows: int) -> None:
    """Raise `BadInput` that names `rows` unless it is from 1 to MAX_ROWS."""
    if not 1 <= rows <= MAX_ROWS:
        raise BadInput("rows", f"must be a whole number from 1 to {MAX_ROWS}, not {rows}.")
