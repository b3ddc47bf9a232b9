"""Lists of words that a person writes in one line, as in an environment variable."""

import shlex

from common.errors import BadInput


def split_words(text: str, name: str) -> list[str]:
    """Return the words between blanks. Quotes keep a word with blanks together, as in a shell.

    A backslash is literal, since names of Windows domains contain it. Raises `BadInput` that names `name`.
    """
    reader = shlex.shlex(text, posix=True)
    reader.whitespace_split = True
    reader.commenters = reader.escape = ""
    try:
        return list(reader)
    except ValueError:
        raise BadInput(name, "has an unclosed quotation mark.") from None
