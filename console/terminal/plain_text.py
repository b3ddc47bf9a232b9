"""Text from outside in a terminal: plain characters, no markup and none of a terminal's control sequences."""

from typing import Any

from rich.text import Text

UNPRINTABLE = "?"


def plain_text(value: Any, longest: int = 2000) -> str:
    """In one line, as characters that can be shown: whatever steers a terminal or turns its reading direction
    becomes a question mark.
    """
    return plain_line(" ".join(str(value)[:longest].split()))


def plain_line(text: str) -> str:
    """The same of a line whose spaces stay, however long."""
    return text if text.isprintable() else "".join(c if c.isprintable() else UNPRINTABLE for c in text)


def cell(value: Any, style: str = "") -> Text:
    """The same for a table, which takes a bare string for markup."""
    return Text(plain_text(value), style=style, no_wrap=True, overflow="ellipsis")
