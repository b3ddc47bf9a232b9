"""Standard input, where there is one: who starts a program may have closed it."""

import sys
from typing import TextIO

from queues.errors import BadInput


def standard_input(field: str) -> TextIO:
    """The stream that `-` stands for. Raises `BadInput` naming the field where it is closed."""
    if sys.stdin is None:
        raise BadInput(field, "standard input is closed; give a file, or something on standard input")
    return sys.stdin
