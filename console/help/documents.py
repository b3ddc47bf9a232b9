"""The reference of the documents that processes exchange: a table for each type, made from the types."""

import inspect as about
from collections.abc import Iterator

from msgspec import NODEFAULT, inspect

from common.stored_document import StoredDocument
from queues import keys
from queues.nodes.heartbeat import Heartbeat
from workers.documents.alerts import AuditVerdict
from workers.documents.controls import ControlValues
from workers.documents.hosts import ReportedHost
from workers.documents.pipeline import PipelineReport
from workers.documents.plans import PlanDocument
from workers.documents.plants import PlantHolder
from workers.documents.queues import ReportedProducer
from workers.documents.snapshot import Snapshot

# Where each is stored; a plan has its own tables, and is a document for pages and the API.
ROOTS: tuple[tuple[type[StoredDocument], str], ...] = (
    (Snapshot, keys.SNAPSHOT),
    (Heartbeat, keys.HEARTBEATS),
    (ReportedHost, keys.HOSTS),
    (ReportedProducer, keys.PRODUCERS),
    (PipelineReport, keys.PIPELINE),
    (ControlValues, keys.PIPELINE_CONTROLS.build("{application}")),
    (PlantHolder, keys.HOLDER.build("{plant}")),
    (AuditVerdict, keys.AUDIT_VERDICT),
    (PlanDocument, ""),
)
WORDS = {
    inspect.IntType: "whole number",
    inspect.FloatType: "number",
    inspect.StrType: "text",
    inspect.BoolType: "true or false",
    inspect.NoneType: "null",
    inspect.AnyType: "any value",
}


def iterate_document_types() -> Iterator[inspect.StructType]:
    """Return each type once, the roots first where they are, then the types of their fields."""
    waiting: list[inspect.Type] = [inspect.type_info(kind) for kind, _ in ROOTS]
    seen: set[type] = set()
    while waiting:
        kind = waiting.pop(0)
        if isinstance(kind, inspect.StructType) and kind.cls not in seen:
            seen.add(kind.cls)
            yield kind
            waiting[:0] = [part for field in kind.fields for part in iterate_inner_types(field.type)]


def iterate_inner_types(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Return the types of documents in a field's type."""
    if isinstance(kind, inspect.UnionType):
        for event_type in kind.types:
            yield from iterate_inner_types(event_type)
    elif isinstance(kind, inspect.ListType):
        yield from iterate_inner_types(kind.item_type)
    elif isinstance(kind, inspect.DictType):
        yield from iterate_inner_types(kind.value_type)
    elif isinstance(kind, inspect.StructType):
        yield kind


def describe_type(kind: inspect.Type) -> str:
    """Return the text for a type; a document is a link to its table."""
    if isinstance(kind, inspect.UnionType):
        return " or ".join(describe_type(event_type) for event_type in kind.types)
    if isinstance(kind, inspect.ListType):
        return f"list of {describe_type(kind.item_type)}"
    if isinstance(kind, inspect.DictType):
        return f"{describe_type(kind.value_type)} by name"
    if isinstance(kind, inspect.StructType):
        return f"[{kind.cls.__name__}](#{kind.cls.__name__.lower()})"
    return WORDS.get(type(kind), type(kind).__name__)


def iterate_field_rows(kind: inspect.StructType) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each field: its JSON key, its type, and its default.

    The default applies if an older process left the field out.
    """
    for field in kind.fields:
        yield f"`{field.encode_name}`", describe_type(field.type), _default(field)


def describe_document(kind: inspect.StructType) -> str:
    """Return its docstring, and where it is stored."""
    places: dict[type, str] = dict(ROOTS)
    stored = places.get(kind.cls)
    place = f" Key `{stored}`." if stored else ""
    return " ".join((about.getdoc(kind.cls) or "").split()) + place


def _default(field: inspect.Field) -> str:
    if field.required:
        return "needed"
    if field.default is NODEFAULT or isinstance(field.default, StoredDocument):
        return "empty"
    return "null" if field.default is None else f"`{field.default}`"
