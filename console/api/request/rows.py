"""How many rows a request may ask for at once."""

from queues.errors import BadInput

MOST_ROWS = 500


def check_rows(rows: int) -> None:
    """Raises BadInput naming `rows` unless it is from 1 to MOST_ROWS."""
    if not 1 <= rows <= MOST_ROWS:
        raise BadInput("rows", f"takes a whole number from 1 to {MOST_ROWS}, not {rows}.")
