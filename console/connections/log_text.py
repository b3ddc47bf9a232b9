"""Lines of a log for display, without secrets that a library may have written there."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from common import environment as variables

HIDDEN = "…"
MIN_WORD_LENGTH = 6  # a shorter word would be found everywhere
PERCENT = re.compile(r"%[0-9A-F]{2}")
PASSWORD = re.compile(r"://[^\s:/@]*:(.+)@")  # of an address; it may contain any of these characters, too
# user:password@ in an address; a bearer or a token of ours; password=…, "secret": "…", also within JSON's own
# texts (\"token\": \"…\"). Characters around a secret stay, so that JSON remains JSON.
NAMED, QUOTED = r"(?:password|passwd|secret|token|authorization|api_?key)", r"\\*[\"']?"
VALUE = r"(?:[^\s\"',}\\]|\\[^\"'])+"
PATTERNS = (
    re.compile(r"(?<=://)[^\s/@]*@"),
    re.compile(rf"(?i)(?<=bearer ){VALUE}"),
    re.compile(r"\bweir_[\w-]{16,}"),
    re.compile(rf"(?i)({NAMED}{QUOTED}\s*[=:]\s*{QUOTED}(?:basic )?){VALUE}"),
)


def end_of(log: Path, most_bytes: int) -> str:
    """Return the last complete lines of a log with any bytes.

    A partial line may start with the rest of a secret, which could not be recognized. Raises `OSError`.
    """
    with log.open("rb") as file:
        begin = max(0, log.stat().st_size - most_bytes)
        file.seek(begin)
        text = file.read(most_bytes).decode(errors="replace")
    return text.partition("\n")[2] if begin else text


def mask_secrets(text: str, environment: Mapping[str, str] = variables.PROCESS) -> str:
    text = mask_words(text, _iterate_secrets(environment))
    address, bearer, token, named = PATTERNS
    text = token.sub(HIDDEN, bearer.sub(HIDDEN, address.sub(f"{HIDDEN}@", text)))
    return named.sub(lambda found: found[1] + HIDDEN, text)


def mask_words(text: str, words: Iterable[str]) -> str:
    """Return the text with these words masked, also as JSON and addresses encode them.

    The longest first, since one may contain another.
    """
    for form in sorted({form for word in words for form in _list_encoded_forms(word)}, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


def _list_encoded_forms(word: str) -> set[str]:
    """Return the forms of a word, including its percent-decoded form."""
    plain = {word, unquote(word)}
    coded = {quote(form, safe=safe) for form in plain for safe in ("", "/", "!$&'()*+,;=")}
    coded |= {PERCENT.sub(lambda found: found[0].lower(), form) for form in coded}
    in_json = {json.dumps(form, ensure_ascii=ascii)[1:-1] for form in plain for ascii in (True, False)}
    return {form for form in plain | coded | in_json if len(form) >= MIN_WORD_LENGTH}


def _iterate_secrets(environment: Mapping[str, str]) -> Iterator[str]:
    declared = {variable.name for variable in variables.DECLARED if variable.secret}
    families = (variables.PASSWORD_PREFIX, variables.SECRET_PREFIX)
    for name, value in environment.items():
        if name in declared or name.startswith(families) or variables.SECRET_NAME.match(name):
            words = [value, *value.split(), value.rpartition("@")[0].rpartition(":")[2]]
            words += [match[1] for text in [value, *words] if (match := PASSWORD.search(text))]
            yield from (word for word in words if len(word) >= MIN_WORD_LENGTH)
