"""Documents that processes exchange through the control server.

Each document has a type. All are written and read in the same way. A field has the name of its JSON key. Unknown is
None, and null in JSON. A reader that is older than the writer ignores fields it does not know; a newer one has a
default for each field that an older writer leaves out. Processes of two versions can therefore work together during an
upgrade. A float with a whole value (3.0) is accepted as an integer, since a rejected document stops its readers.

The type of a field also has its metadata: its unit (`Seconds`), its help, and whether it is a metric and a column of
the history (`describe`). The API's document, the exposition, the history, the scripts' types, and the reference follow.
"""

import functools
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from common.errors import WeirError


class StoredDocument(msgspec.Struct, frozen=True):
    """Base of each document and of each part of one.

    Values are not checked on creation: the author ensures their types.
    """


class Figure(NamedTuple):
    """A field that leaves its document as a metric."""

    name: str
    help: str
    metric: Literal["gauge", "counter"]


Instant = Annotated[float, msgspec.Meta(description="Unix time in seconds (UTC).")]
Time = Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]
Seconds = Annotated[float, msgspec.Meta(description="Seconds.")]
PerSecond = Annotated[float, msgspec.Meta(description="Events per second.")]
Share = Annotated[float, msgspec.Meta(description="A share, 0 to 1.")]
Bytes = Annotated[int, msgspec.Meta(description="Bytes.")]
Events = Annotated[int, msgspec.Meta(description="Events.")]
Points = Annotated[int, msgspec.Meta(description="Points, out of the queue's 1,000.")]


def describe(
    text: str | None = None,
    *,
    metric: Literal["gauge", "counter"] | None = None,
    recorded: bool = False,
    values: Iterable[str] = (),
) -> msgspec.Meta:
    """Return the metadata of a field, for `Annotated`.

    metric: it is exported to Prometheus, with the text as its help. recorded: it is a column of the history. values:
    what it may be, for the API's document; readers accept others, since a newer writer may have more.
    """
    schema = {"enum": [str(value) for value in values]} if values else None
    return msgspec.Meta(
        description=text, extra_json_schema=schema, extra={"metric": metric, "recorded": recorded, "help": text}
    )


def describe_metric(text: str) -> msgspec.Meta:
    """Return the metadata of a field that is a gauge of Prometheus and a column of the history."""
    return describe(text, metric="gauge", recorded=True)


@functools.cache
def list_figures(kind: type[StoredDocument]) -> tuple[Figure, ...]:
    """Return a document's metrics."""
    fields = _iterate_metadata(kind)
    return tuple(Figure(name, extra["help"], extra["metric"]) for name, extra in fields if extra["metric"])


@functools.cache
def list_recorded(kind: type[StoredDocument]) -> tuple[str, ...]:
    """Return the names of a document's fields that are columns of the history."""
    return tuple(name for name, extra in _iterate_metadata(kind) if extra["recorded"])


def _iterate_metadata(kind: type[StoredDocument]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in msgspec.structs.fields(kind):
        for meta in getattr(field.type, "__metadata__", ()):
            if meta.extra is not None:
                yield field.name, meta.extra


class BadDocument(WeirError, ValueError):  # noqa: N818
    """A document that does not match its type: `field` names the position, `message` what it takes."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.message = field, message

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.field, self.message)


Read = TypeVar("Read", bound=msgspec.Struct)
_ENCODER = msgspec.json.Encoder()
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
# msgspec stores the description of a type before it is complete, and runs Python code until then. A decoder that
# another thread builds meanwhile would use the incomplete description, and crash the process.
_BUILDING = threading.Lock()


def encode_document(document: StoredDocument | Mapping[str, Any]) -> bytes:
    """Return its JSON, with null for a number that is not finite. In a mapping, `msgspec.Raw` is encoded content."""
    return _ENCODER.encode(document)


def decode_document(kind: type[Read], text: bytes | str, name: str) -> Read:
    """Parse the document of a JSON text. Raises `BadDocument` that names the position below `name`."""
    try:
        document: Read = get_decoder(kind).decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _build_error(name, str(error)) from None
    return document


def get_decoder(kind: object) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type. Use no other one for a type with a Struct: threads could build both at once."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        with _BUILDING:
            decoder = _DECODERS.setdefault(kind, msgspec.json.Decoder(kind, strict=False))
    return decoder


def decode_readable_document(kind: type[Read], text: bytes | str | None) -> Read | None:
    """Do the same; return None if there is no text, or it is unreadable."""
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
        self._logged = {logged_kind for logged_kind in self._logged if logged_kind[0] is not kind} | known


def convert(kind: type[Read], value: object, name: str = "document") -> Read:
    """Convert plain values to a document. Raises `BadDocument` that names the position below `name`."""
    get_decoder(kind)  # builds the description of the type, which `msgspec.convert` uses too
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _build_error(name, str(error)) from None


def convert_to_plain(document: msgspec.Struct) -> dict[str, Any]:
    """Return the document as dicts and lists of JSON values."""
    values: dict[str, Any] = msgspec.to_builtins(document)
    return values


def replace_fields(document: Read, **values: object) -> Read:
    """Return a copy with other values; its parts are shared."""
    return msgspec.structs.replace(document, **values)


def copy_shared_values(document: StoredDocument, base: type[StoredDocument]) -> dict[str, Any]:
    """Return a document's values of a base's fields by name, to make another document of that base."""
    return {name: getattr(document, name) for name in base.__struct_fields__}


def find_value(document: StoredDocument, key: str) -> object:
    """Return the value under a JSON key; None if there is no such key."""
    names = _NAMES.get(type(document))
    if names is None:
        kind = type(document)
        pairs = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        names = _NAMES.setdefault(kind, dict(pairs))
    return getattr(document, names[key]) if key in names else None


_NAMES: dict[type, dict[str, str]] = {}


def _build_error(name: str, error: str) -> BadDocument:
    """Convert msgspec's message, "Expected `int`, got `str` - at `$.nodes[...].points`"."""
    what, _, path = error.partition(" - at `$")
    return BadDocument(f"{name}{path.rstrip('`')}", f"{what[:1].lower()}{what[1:]}")
