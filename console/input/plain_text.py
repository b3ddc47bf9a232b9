"""The text that can be stored: UTF-8 without NUL (PostgreSQL stores none) and without lone surrogates."""

from common.checks import UNSTORABLE_CHARACTER

UNSTORABLE = "must be UTF-8 text without NUL characters or unpaired surrogates."


def is_plain(text: str) -> bool:
    """Return whether every database and every file can store the text."""
    return UNSTORABLE_CHARACTER.search(text) is None
