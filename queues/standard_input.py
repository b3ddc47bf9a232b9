"""Standard input, where there is one: who starts a program may have closed it."""

import io
import sys
from typing import TextIO

from queues.errors import BadInput


def standard_input(field: str) -> TextIO:
    """The stream that `-` stands for, in UTF-8 as files are. Raises `BadInput` naming the field where it is
    closed.
    """
    if sys.stdin is None:
        raise BadInput(field, "standard input is closed; give a file, or something on standard input")
    if isinstance(sys.stdin, io.TextIOWrapper):
        # Else in what the locale says: names come out as others, and of what is no text half is taken.
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    return sys.stdin
