"""Text from outside made harmless, before people read it in a mail, a chat or on a pager."""

import re

# What chat services take as a tag, a link under other words, or a call to everybody. Tags get the single
# guillemets instead, which look alike.
_TAGS = str.maketrans({"<": "\u2039", ">": "\u203a"})
_CALL = re.compile(r"@(?=[*_]*(all|channel|everyone|here|room)\b)", re.IGNORECASE)
_LINK = re.compile(r"\](?=[(\[:])")


def one_line(text: str) -> str:
    """Whatever it holds: without line breaks and other control characters."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def without_markup(text: str) -> str:
    """The text as a chat shows it: names of queues, hosts and people make no tag, no link under other words
    and no call to everybody. An address stays one.
    """
    return _LINK.sub("] ", _CALL.sub("@\u200b", text.translate(_TAGS)))
