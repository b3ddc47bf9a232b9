"""The reference of the documents that processes exchange: a table for each type, made from the types."""

import inspect as about
import sys
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
SCRIPT_TYPES = {
    inspect.IntType: "number",
    inspect.FloatType: "number",
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.NoneType: "null",
    inspect.AnyType: "any",
}


def iterate_document_types(*roots: type[StoredDocument]) -> Iterator[inspect.StructType]:
    """Return each type once, the roots first where they are, then the types of their fields."""
    waiting: list[inspect.Type] = [inspect.type_info(kind) for kind in roots or (kind for kind, _ in ROOTS)]
    seen: set[type] = set()
    while waiting:
        kind = waiting.pop(0)
        if isinstance(kind, inspect.StructType) and kind.cls not in seen:
            seen.add(kind.cls)
            yield kind
            waiting[:0] = [part for field in kind.fields for part in iterate_inner_types(field.type)]


def iterate_inner_types(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Return the types of documents in a field's type."""
    match kind:
        case inspect.Metadata():
            yield from iterate_inner_types(kind.type)
        case inspect.UnionType():
            for inner in kind.types:
                yield from iterate_inner_types(inner)
        case inspect.ListType():
            yield from iterate_inner_types(kind.item_type)
        case inspect.DictType():
            yield from iterate_inner_types(kind.value_type)
        case inspect.StructType():
            yield kind


def describe_type(kind: inspect.Type) -> str:
    """Return the text for a type; a document is a link to its table."""
    match kind:
        case inspect.Metadata():
            return describe_type(kind.type)
        case inspect.UnionType():
            return " or ".join(map(describe_type, kind.types))
        case inspect.ListType():
            return f"list of {describe_type(kind.item_type)}"
        case inspect.DictType():
            return f"{describe_type(kind.value_type)} by name"
        case inspect.LiteralType():
            return " or ".join(f"`{value}`" for value in kind.values)
        case inspect.StructType():
            return f"[{kind.cls.__name__}](#{kind.cls.__name__.lower()})"
    return WORDS[type(kind)]


def iterate_field_rows(kind: inspect.StructType) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each field: its JSON key, its type, its help, and its default.

    The default applies if an older process left the field out.
    """
    for field in kind.fields:
        yield f"`{field.encode_name}`", describe_type(field.type), _describe_field(field.type), _default(field)


def describe_document(kind: inspect.StructType) -> str:
    """Return its docstring, and where it is stored."""
    places: dict[type, str] = dict(ROOTS)
    stored = places.get(kind.cls)
    place = f" Key `{stored}`." if stored else ""
    return " ".join((about.getdoc(kind.cls) or "").split()) + place


def build_script_types() -> str:
    """Return the snapshot's types for the checker of the scripts (static/js/documents.d.ts)."""
    types = "".join(
        f"\ninterface {kind.cls.__name__} {{\n"
        + "".join(f'  "{field.encode_name}": {_build_script_type(field.type)};\n' for field in kind.fields)
        + "}\n"
        for kind in iterate_document_types(Snapshot)
    )
    head = "// Documents that processes exchange (workers/documents), written by `python -m console.help.documents`."
    return f"{head}\n{types}"


def _build_script_type(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return _build_script_type(kind.type)
        case inspect.UnionType():
            return " | ".join(map(_build_script_type, kind.types))
        case inspect.ListType():
            return f"Array<{_build_script_type(kind.item_type)}>"
        case inspect.DictType():
            return f"Record<string, {_build_script_type(kind.value_type)}>"
        case inspect.LiteralType():
            return " | ".join(f'"{value}"' for value in kind.values)
        case inspect.StructType():
            return kind.cls.__name__
    return SCRIPT_TYPES[type(kind)]


def _describe_field(kind: inspect.Type) -> str:
    """Return its help; that of a value that may be null, such as a number of seconds, is at the value's own type."""
    if isinstance(kind, inspect.Metadata):
        text = (kind.extra_json_schema or {}).get("description")
        return str(text) if text else _describe_field(kind.type)
    if isinstance(kind, inspect.UnionType):
        return next(filter(None, map(_describe_field, kind.types)), "")
    return ""


def _default(field: inspect.Field) -> str:
    if field.required:
        return "needed"
    if field.default is NODEFAULT or isinstance(field.default, StoredDocument):
        return "empty"
    return "null" if field.default is None else f"`{field.default}`"


if __name__ == "__main__":
    sys.stdout.write(build_script_types())
