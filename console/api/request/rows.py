"""The maximum number of rows in an answer."""

from queues.errors import BadInput

MOST_ROWS = 500


def check_rows(rows: int) -> None:
    """Raise `BadInput` that names `rows` unless it is from 1 to MOST_ROWS."""
    if not 1 <= rows <= MOST_ROWS:
        raise BadInput("rows", f"takes a whole number from 1 to {MOST_ROWS}, not {rows}.")
