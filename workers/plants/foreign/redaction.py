"""What is shown of a task's arguments and errors: never what seems secret.

Celery sends arguments as Python would print them. Shown is that text, shortened, with

    name=value, 'name': value    hidden where the name says that it is secret (SECRET_NAMES)
    a password in an address     hidden
    a long token                 hidden: LONGEST_PLAIN characters and more in one go, digits among them

The rule knows no names of positional arguments: an app whose tasks take secrets so is attached with arguments
"hidden" (only how long they are is shown then).
"""

import re

SHOWN, HIDDEN = "shown", "hidden"
MASK = "•••"
LONGEST_TEXT = 200
LONGEST_PLAIN = 24
ENDS = " \t\r\n,()[]{}"  # of words
SECRET_NAMES = (
    r"pass(?:word|wd|phrase)?|secret|token|api_?key|private_?key|access_?key|credentials?|auth(?:orization)?"
    r"|cookie|session(?:_?id)?|signature|card(?:_?number)?|cvc|cvv|iban|ssn|pin"
)
_NAMED = re.compile(
    rf"(?P<name>['\"]?\b[\w-]{{0,40}}?(?:{SECRET_NAMES})[\w-]{{0,40}}['\"]?\s{{0,4}}[:=]\s{{0,4}})"
    r"(?P<value>'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?|[^\s,})\]]+)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(\w{1,20}://[^\s:/@'\"]{0,100}):[^\s@'\"]{1,200}@")
_WORD = re.compile(r"[\w+=-]+(?:\.[\w+=-]+)*")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)


def redacted(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text as it may be shown, at most so long; what is far beyond that is not even read."""
    if len(text) > 4 * longest:
        text = text[: 4 * longest]
        text = text[: max(map(text.rfind, ENDS)) + 1] + MASK  # half a token would not look like one
    text = _NAMED.sub(lambda found: f"{found['name']}{MASK}", text)
    text = _ADDRESS.sub(rf"\1:{MASK}@", text)
    text = _WORD.sub(lambda found: MASK if _is_token(found[0]) else found[0], text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _is_token(word: str) -> bool:
    longest = max(word.split("."), key=len)
    if len(longest) < LONGEST_PLAIN or _UUID.match(word):
        return False
    return any(map(str.isdigit, longest)) and any(map(str.isalpha, longest))


def arguments(args: str, kwargs: str, shown: str = SHOWN) -> str:
    """Of a task, as its event has them ("" where it doesn't)."""
    told = [each for each in (args, kwargs) if each and each not in ("()", "[]", "{}")]
    if shown == HIDDEN:
        return f"{sum(map(len, told))} characters" if told else ""
    return redacted(" ".join(told))
