"""The line of a text that was rejected: errors of YAML end with its number."""

import itertools
import re

from console.pages.frame.page import Errors

LINE = re.compile(r"line (\d+)\)?\.?$")


def find_line_number(message: str) -> int | None:
    """Return the line number at the end of a message; None if there is none."""
    match = LINE.search(message)
    return int(match[1]) if match else None


def find_wrong_line(errors: Errors) -> int | None:
    """Return the line number in the errors of a form."""
    return find_line_number(" ".join(itertools.chain.from_iterable(errors.values())))
