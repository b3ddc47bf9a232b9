"""Documents that processes give each other through the control server: a type each, and one way to
write and read them.

A field has the name of its JSON key. Unknown is None, and null in JSON. A reader that is older than
the writer ignores fields it does not know; one that is newer has a default for each field that an
older writer leaves out. So processes of two versions work together while an upgrade goes on. A
number is taken for a whole one where it is whole (3.0): a document that is refused stops whoever
reads it.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from queues.errors import WeirError


class StoredDocument(msgspec.Struct, frozen=True):
    """Base of each document and of each part of one. Not checked when made: its types are the
    author's.
    """


class BadDocument(WeirError, ValueError):  # noqa: N818
    """A document that is not what its type says: `field` names the place, `message` what it takes."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.message = field, message

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.field, self.message)


Read = TypeVar("Read", bound=StoredDocument)
_ENCODER = msgspec.json.Encoder()
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}


def encode_document(document: StoredDocument | Mapping[str, Any]) -> bytes:
    """Its JSON. A number that is not finite is written as null. In a mapping, `msgspec.Raw` stands
    for what is encoded already.
    """
    return _ENCODER.encode(document)


def decode_document(kind: type[Read], text: bytes | str, name: str) -> Read:
    """The document of a JSON text. Raises BadDocument naming the place below `name`."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS.setdefault(kind, msgspec.json.Decoder(kind, strict=False))
    try:
        found: Read = decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _build_error(name, str(error)) from None
    return found


def readable(kind: type[Read], text: bytes | str | None) -> Read | None:
    """The same; None where nothing stands, or nothing that can be read."""
    try:
        return None if text is None else decode_document(kind, text, kind.__name__)
    except BadDocument:
        return None


class ReportReader:
    """Reads reports of many, each by itself: one that can't be read, as of another version, hides no other.
    What is wrong is logged once, and again only after a readable report.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged: set[tuple[type, str]] = set()

    def read(
        self, kind: type[Read], stored: Iterable[tuple[bytes, bytes]], what: str
    ) -> tuple[dict[str, Read], dict[str, str]]:
        """Return the readable reports by name, and why each other one can't be read."""
        reports, unreadable = dict[str, Read](), dict[str, str]()
        for key, text in stored:
            name = key.decode(errors="backslashreplace")
            try:
                reports[name] = decode_document(kind, text, what)
            except BadDocument as error:
                unreadable[name] = str(error)
        self._log(kind, unreadable, what)
        return reports, unreadable

    def _log(self, kind: type, unreadable: Mapping[str, str], what: str) -> None:
        known = {(kind, name) for name in unreadable}
        for name, reason in unreadable.items():
            if (kind, name) not in self._logged:
                self._logger.warning("The %s of %s can't be read: %s", what, name, reason)
        self._logged = {each for each in self._logged if each[0] is not kind} | known


def convert(kind: type[Read], value: Any, name: str = "document") -> Read:
    """The document of plain values. Raises BadDocument naming the place below `name`."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _build_error(name, str(error)) from None


def plain(document: StoredDocument) -> dict[str, Any]:
    """The same as dicts and lists of JSON values."""
    values: dict[str, Any] = msgspec.to_builtins(document)
    return values


def replace_fields(document: Read, **values: Any) -> Read:
    """A copy with other values; its parts are shared."""
    return msgspec.structs.replace(document, **values)


def copy_shared_values(document: StoredDocument, base: type[StoredDocument]) -> dict[str, Any]:
    """Its values of the fields that it has from a base, by name, to make another of that base."""
    return {name: getattr(document, name) for name in base.__struct_fields__}


def value_at(document: StoredDocument, key: str) -> Any:
    """The value under a JSON key; None where there is no such key."""
    names = _NAMES.get(type(document))
    if names is None:
        kind = type(document)
        pairs = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        names = _NAMES.setdefault(kind, dict(pairs))
    return getattr(document, names[key]) if key in names else None


_NAMES: dict[type, dict[str, str]] = {}


def _build_error(name: str, error: str) -> BadDocument:
    """msgspec writes "Expected `int`, got `str` - at `$.nodes[...].points`"."""
    what, _, path = error.partition(" - at `$")
    return BadDocument(f"{name}{path.rstrip('`')}", f"{what[:1].lower()}{what[1:]}")
