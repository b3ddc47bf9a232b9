"""The query language of the task history: `state:failed name:shop.pay order 4711 since:2h "4711 of"`.

- A word without a key is searched as a whole word in the id, name, arguments, error, worker, queue,
  parent, and root.
- A text in quotes is searched anywhere in them, also within words.
- `id:`, `name:`, `state:`, `worker:`, `queue:`, `parent:`, `root:`, and `failure:` compare the whole value. An id may
  be shortened to 8 characters or more. A name that ends with `*` is compared up to there.
- `since:` and `until:` take a time, or how long ago: `30s`, `15m`, `2h`, `7d`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from common.errors import BadInput
from workers.task_history.record import FINISHED, OPEN, STATES, TaskRecord
from workers.task_history.terms import NAME_STATE, SHORT_ID, TEXTS, build_key_term, list_text_terms, split_words

UUID_LENGTH = 36
MAX_LENGTH, MAX_TEXTS = 1_000, 20
EXACT = ("id", "name", "state", "worker", "queue", "parent", "root", "failure")
FIELDS = (*EXACT, "since", "until", "text")
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_PART = re.compile(r'(?:(?P<key>[a-z_]+):)?(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s"]+))')
_AGO = re.compile(r"(\d{1,6})([smhd])")
_LETTER = r"[^\W_]"


@dataclass(frozen=True, kw_only=True)
class TaskQuery:
    """The conditions of a search, all of which apply. since, until: seconds since 1970, both included.

    words: whole words or several joined by other characters (`shop.pay`); texts: parts of any text. All are in lower
    case.
    """

    id: str = ""
    name: str = ""
    state: str = ""
    worker: str = ""
    queue: str = ""
    parent: str = ""
    root: str = ""
    failure: str = ""
    since: float | None = None
    until: float | None = None
    words: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def terms(self) -> frozenset[str]:
        """Return the terms that each task has that matches."""
        terms = {term for part in self.words for term in list_text_terms(part)}
        for text in self.texts:
            terms |= _list_inner_words(text)
        for value in (self.parent, self.root):
            terms |= list_text_terms(value)
        if self.id:
            terms |= {self.id[:SHORT_ID].lower()}
            terms |= {self.id.lower()} if len(self.id) >= UUID_LENGTH else set()
        if self.name.endswith("*"):
            terms |= _list_first_words(self.name[:-1])
        elif self.name and self.state:
            terms.add(build_key_term(NAME_STATE, self.name, self.state))
        elif self.name:
            terms.add(build_key_term("name", self.name))
        for key in ("worker", "queue", "failure"):
            if value := getattr(self, key):
                terms.add(build_key_term(key, value))
        if self.state:
            terms.add(build_key_term("state", self.state))
        return frozenset(terms)

    def matches(self, record: TaskRecord) -> bool:
        """Return whether a task matches; the time range is not checked."""
        return self.matches_values(record) and self.matches_texts([getattr(record, name) for name in TEXTS])

    def matches_values(self, record: TaskRecord) -> bool:
        """Return whether the keys of the query match."""
        if self.id and not record.id.startswith(self.id):
            return False
        if self.state == OPEN:
            if record.state in FINISHED:
                return False
        elif self.state and record.state != self.state:
            return False
        if self.name.endswith("*"):
            if not record.name.startswith(self.name[:-1]):
                return False
        elif self.name and record.name != self.name:
            return False
        return all(
            getattr(record, key) == value
            for key in ("worker", "queue", "parent", "root", "failure")
            if (value := getattr(self, key))
        )

    def matches_texts(self, values: list[str]) -> bool:
        """Return whether the words and texts of the query are in the values of a record's texts."""
        if not self.words and not self.texts:
            return True
        text = "\n".join(values).lower()
        if any(part not in text for part in (*self.texts, *self.words)):
            return False
        if not self.words:
            return True
        terms = list_text_terms(text)
        return all(is_whole(part, text) and terms >= list_text_terms(part) for part in self.words)


def parse_query(text: str, now: float, fields: Mapping[str, str] | None = None) -> TaskQuery:
    """Return the query of a text and of further fields by name. Raises BadInput naming the field."""
    if len(text) > MAX_LENGTH:
        raise BadInput("query", f"must have at most {MAX_LENGTH:,} characters.")
    if text.count('"') % 2:
        raise BadInput("query", "has an opening quote without a closing one. Add the closing quote.")
    query = TaskQuery()
    for match in _PART.finditer(text):
        key, quoted, plain = match["key"], match["quoted"], match["plain"]
        if key is not None and key in FIELDS:
            query = _set_field(query, key, quoted if plain is None else plain, now)
        elif plain is None:
            query = _add_text(query, quoted if key is None else f"{key}:{quoted}")
        else:
            query = _add_word(query, plain if key is None else f"{key}:{plain}")
    for key, value in (fields or {}).items():
        if key not in FIELDS:
            raise BadInput(key, f"is unknown. Known fields: {', '.join(FIELDS)}.")
        if value:
            query = _set_field(query, key, value, now)
    if query.since is not None and query.until is not None and query.since > query.until:
        raise BadInput("until", "must not be before since.")
    return query


def is_whole(part: str, text: str) -> bool:
    """Return whether the part is in the text without a letter or digit directly before or after it."""
    return re.search(rf"(?<!{_LETTER}){re.escape(part)}(?!{_LETTER})", text) is not None


def _add_word(query: TaskQuery, word: str) -> TaskQuery:
    if not split_words(word):
        raise BadInput("query", f"has no letter or digit in {word[:40]!r}. Put it in quotes.")
    _check_number(query)
    return replace(query, words=(*query.words, word.lower()))


def _add_text(query: TaskQuery, text: str) -> TaskQuery:
    if not text.strip():
        raise BadInput("query", "has an empty text in quotes. Enter a text, or remove the quotes.")
    _check_number(query)
    return replace(query, texts=(*query.texts, text.lower()))


def _check_number(query: TaskQuery) -> None:
    if len(query.words) + len(query.texts) >= MAX_TEXTS:
        raise BadInput("query", f"must have at most {MAX_TEXTS} words and texts.")


def _set_field(query: TaskQuery, key: str, value: str, now: float) -> TaskQuery:
    if key == "text":
        return _add_text(query, value)
    if key in ("since", "until"):
        at = _parse_time(key, value, now)
        return replace(query, since=at) if key == "since" else replace(query, until=at)
    if key == "state" and value not in (*STATES, OPEN):
        raise BadInput("state", f"must be one of {', '.join((*STATES, OPEN))}, not {value[:40]}.")
    if key == "id" and len(value) < SHORT_ID:
        raise BadInput("id", f"must have at least {SHORT_ID} characters, not {len(value)}.")
    changed: TaskQuery = replace(query, **{key: value})  # type: ignore[arg-type] # all of these are texts
    return changed


def _parse_time(key: str, value: str, now: float) -> float:
    if match := _AGO.fullmatch(value):
        return now - int(match[1]) * SECONDS[match[2]]
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise BadInput(
            key, f"must be a time such as 2026-11-20T08:14:00Z, or a duration such as 30m, 2h, or 7d, not {value[:40]}."
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _list_first_words(beginning: str) -> set[str]:
    """Return the words that are surely whole in a text that begins so."""
    words = split_words(beginning)
    return set(words[:-1] if beginning[-1:].isalnum() or beginning.endswith("-") else words)


def _list_inner_words(text: str) -> set[str]:
    """Return the words that are surely whole: a text in quotes may begin and end within a word.

    A hyphen may be that of a UUID of which the text has only a part.
    """
    return {word for part in text.split()[1:-1] if "-" not in part for word in split_words(part)}
