"""Text from outside, made harmless before people read it in a mail, a chat, or on a pager."""

import re

# What chat services read as a tag, a link under other words, or a mention of everybody. Tags get single
# guillemets instead, which look alike.
_TAGS = str.maketrans({"<": "\u2039", ">": "\u203a"})
_CALL = re.compile(r"@(?=[*_]*(all|channel|everyone|here|room)\b)", re.IGNORECASE)
CUT = "Truncated; see the console for the rest."
_LINK = re.compile(r"\](?=[(\[:])")


def format_one_line(text: str) -> str:
    """Return a text as one line, without line breaks and other control characters."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def keep_whole_lines(text: str, most: int) -> str:
    """Return the lines that fit into this many characters, and a line that says so if some don't fit.

    A link that is cut, /alerts/12 to /alerts/1, would lead to another alert.
    """
    if len(text) <= most:
        return text
    kept: list[str] = []
    left = most - len(CUT)
    for line in text.splitlines():
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    return "\n".join([*kept, CUT]) if kept else format_one_line(text)[: max(0, most)]


def remove_markup(text: str) -> str:
    """Return the text as a chat shows it.

    Names of queues, hosts, and people make no tag, no link under other words, and no mention of everybody. An address
    stays an address.
    """
    return _LINK.sub("] ", _CALL.sub("@\u200b", text.translate(_TAGS)))
