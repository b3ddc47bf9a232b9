"""Redaction of a task's arguments and errors: nothing that seems secret is shown.

Celery sends arguments as Python would print them. That text is shown, shortened, with

    name=value, 'name': value    hidden if the name says that it is secret (SECRET_NAMES): a word, a text,
                                 or everything within brackets; to the end if they are not closed
    a password in an address     hidden
    a long token                 hidden: at least MAX_PLAIN characters without a break, including digits

Positional arguments have no names for this rule: if tasks take secrets that way, attach the app with arguments "hidden"
(only their length is shown then).
"""

import re

SHOWN, HIDDEN = "shown", "hidden"
MASK = "•••"
MAX_TEXT = 200
MAX_PLAIN = 24
ENDS = " \t\r\n,()[]{}"  # of words
SECRET_NAMES = (
    r"pass(?:word|wd|phrase)?|secret|token|api_?key|private_?key|access_?key|credentials?|auth(?:orization)?"
    r"|cookie|session(?:_?id)?|signature|card(?:_?number)?|cvc|cvv|iban|ssn|pin"
)
# `name=`, `'name': `, and the first of a pair, `('name', `; escaped quotes are those of a text within a text.
_NAMED = re.compile(
    rf"\b[\w-]{{0,40}}?(?:{SECRET_NAMES})[\w-]{{0,40}}"
    r"(?:\\{0,8}['\"]?\s{0,4}[:=]{1,2}>?\s{0,4}|(?P<pair>\\{0,8}['\"]\s{0,4},\s{0,4}))",
    re.IGNORECASE,
)
_QUOTE = re.compile(r"[brufBRUF]{0,2}(?P<mark>\\{0,8}['\"])")
_FIRST = re.compile(r"[(\[]\s{0,4}[brufBRUF]{0,2}\\{0,8}['\"]\Z")
MAX_BEGINNING = 16
_MARK = re.compile(r"\\{0,8}['\"]|[()\[\]{}<>]")
CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
# Up to the last @ of the word: an unescaped @ may be part of the password.
_ADDRESS = re.compile(r"(\w{1,20}://[^\s:/@'\"]{0,100}):[^\s'\"]{1,200}@")
_WORD = re.compile(r"[\w+=-]+(?:\.[\w+=-]+)*")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)


def redact(text: str, longest: int = MAX_TEXT) -> str:
    """Return the text as it may be shown, at most this long; text far beyond that is not even read."""
    if len(text) > 4 * longest:
        text = text[: 4 * longest]
        text = text[: max(map(text.rfind, ENDS)) + 1] + MASK  # half a token would not be recognized
    text = _ADDRESS.sub(rf"\1:{MASK}@", _remove_named_secrets(text))
    text = _WORD.sub(lambda found: MASK if _is_token(found[0]) else found[0], text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _remove_named_secrets(text: str) -> str:
    """Remove named secrets; each character is visited once, whatever is open or quoted."""
    shown, at = list[str](), 0
    while match := _NAMED.search(text, at):
        begin, name = match.end(), match[0].lower()
        end = begin
        if not match["pair"] or _FIRST.search(text, max(0, match.start() - MAX_BEGINNING), match.start()):
            end = _find_value_end(text, begin, name)
        shown += [text[at:begin], MASK if end > begin else ""]
        at = end
    return "".join([*shown, text[at:]])


def _find_value_end(text: str, at: int, name: str) -> int:
    """Return the end of a value: a text, or a word with everything that it has in brackets.

    After `Authorization:` the value is a scheme and a word, in a cookie many words.
    """
    if _QUOTE.match(text, at):
        return _find_text_end(text, at)
    words = 2 if "authorization" in name else 1
    while at < len(text):
        character = text[at]
        if character in CLOSING:
            at = _find_bracket_end(text, at)
        elif character.isspace() and (words > 1 or ("cookie" in name and text[at - 1] == ";")):
            words, at = words - 1, at + 1
        elif character.isspace() or character in ",)]}":
            break
        else:
            at += 1
    return at


def _find_text_end(text: str, at: int) -> int:
    """Return the position after the closing quote, which is escaped like the opening one."""
    match = _QUOTE.match(text, at)
    assert match is not None
    mark, at = match["mark"], match.end()
    while (place := text.find(mark, at)) >= 0:
        escapes = place - len(text[at:place].rstrip("\\")) - at
        at = place + len(mark)
        if escapes % 2 == 0 if len(mark) == 1 else not escapes:
            return at
    return len(text)


def _find_bracket_end(text: str, at: int) -> int:
    """Return the position after the bracket that closes the one at `at`."""
    is_open: list[str] = []
    while match := _MARK.search(text, at):
        at = match.end()
        if match[0] in CLOSING:
            is_open.append(CLOSING[match[0]])
        elif match[0][-1] in "'\"":
            at = _find_text_end(text, match.start())
        elif match[0] == is_open[-1]:
            is_open.pop()
        if not is_open:
            return at
    return len(text)


def _is_token(word: str) -> bool:
    longest = max(word.split("."), key=len)
    if len(longest) < MAX_PLAIN or _UUID.match(word):
        return False
    return any(map(str.isdigit, longest)) and any(map(str.isalpha, longest))


def format_arguments(args: str, kwargs: str, shown: str = SHOWN) -> str:
    """Return the arguments of a task from its event ("" if it has none)."""
    told = [argument for argument in (args, kwargs) if argument and argument not in ("()", "[]", "{}")]
    if shown == HIDDEN:
        return f"{sum(map(len, told))} characters" if told else ""
    return redact(" ".join(told))
