"""Standard input, if there is one: the caller of a program may have closed it."""

import io
import sys
from typing import TextIO

from common.errors import BadInput


def get_standard_input(field: str) -> TextIO:
    """Return the stream for `-`, in UTF-8 like files.

    Raises `BadInput` that names the field if it is closed.
    """
    if sys.stdin is None:
        raise BadInput(field, "standard input is closed; pass a file, or open standard input")
    if isinstance(sys.stdin, io.TextIOWrapper):
        # The default is the locale's encoding, which changes names and reads half of what is not text.
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    return sys.stdin
