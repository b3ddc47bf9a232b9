"""External text in a terminal: plain characters, without markup and control sequences."""

from typing import Any

from rich.text import Text

UNPRINTABLE = "?"


def format_plain_text(value: Any, longest: int = 2000) -> str:
    """Return the value in one line of printable characters.

    Control characters and those that change the reading direction become question marks.
    """
    return format_plain_line(" ".join(str(value)[:longest].split()))


def format_plain_line(text: str) -> str:
    """Return a line likewise, of any length and with its spaces."""
    return text if text.isprintable() else "".join(c if c.isprintable() else UNPRINTABLE for c in text)


def build_cell(value: Any, style: str = "") -> Text:
    """Return a cell of a table, which would parse a bare string as markup."""
    return Text(format_plain_text(value), style=style, no_wrap=True, overflow="ellipsis")
