"""Which line of a text was refused: what reads YAML ends its messages with it."""

import itertools
import re

from console.pages.frame.page import Errors

LINE = re.compile(r"line (\d+)\)?\.?$")


def line_in(message: str) -> int | None:
    """The line that a message ends with; None for none."""
    match = LINE.search(message)
    return int(match[1]) if match else None


def wrong_line(errors: Errors) -> int | None:
    """That of the errors at a form."""
    return line_in(" ".join(itertools.chain.from_iterable(errors.values())))
