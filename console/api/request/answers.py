"""Answers of the API: the return type of a route declares its answer, and schemas are made from these types.

An answer is sent as the route made it: mypy checks its type, which the API's document describes, and tests hold every
route's answers to the document. Nothing is converted (a whole number stays one), a long list is not read twice, and
users get figures even if a schema is wrong.
"""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Annotated, Any, TypeAlias, TypeVar, cast, get_args, get_type_hints

import msgspec
import ninja
from django.db.models import Model, QuerySet
from django.http import Http404
from django.http.response import HttpResponseBase
from ninja import NinjaAPI
from ninja.constants import NOT_SET
from ninja.operation import Operation
from ninja.renderers import JSONRenderer
from ninja.responses import NinjaJSONEncoder

from common.stored_document import describe
from console.actions.exports import CSV, JSON_LINES
from console.api.request.input import require_plain_numbers

Json: TypeAlias = Any
Document: TypeAlias = dict[str, Any]
NextPage = Annotated[int | None, describe("The value of `before` for the next page; null: last page.")]
Answer = TypeVar("Answer")
Row = TypeVar("Row", bound=Model)
Created = Annotated[Answer, 201]  # the return type of a route that answers 201; of several statuses: {status: type}
ANSWERS: dict[str, Mapping[int, Any]] = {}  # operation → status → type


class Router(ninja.Router):
    """A router whose routes declare their answer by their return type.

    A route that sends a file describes it in `openapi_extra`. Raises `TypeError` for a route that declares neither.
    """

    def add_api_operation(self, path: str, methods: list[str], view_func: Callable[..., Any], **options: Any) -> None:
        hint = get_type_hints(view_func, include_extras=True).get("return", HttpResponseBase)
        metadata: tuple[Any, ...] = getattr(hint, "__metadata__", ())
        answers = next((value for value in metadata if isinstance(value, dict)), None) or {200: hint}
        if statuses := [value for value in metadata if isinstance(value, int)]:
            answers = dict.fromkeys(statuses, get_args(hint)[0])
        super().add_api_operation(path, methods, view_func, **{**options, "by_alias": True})
        operation = self.path_operations[path].operations[-1]
        require_plain_numbers(operation.models)
        if not (isinstance(hint, type) and issubclass(hint, HttpResponseBase)):
            ANSWERS[view_func.__name__] = answers
            operation.response_models = dict.fromkeys(answers, NOT_SET)
        elif "responses" not in (options.get("openapi_extra") or {}):
            raise TypeError(f"{path} declares no answer. Set its return type.")


class AnswerEncoder(NinjaJSONEncoder):
    """Encodes documents and dataclasses, and times as Django does."""

    def default(self, o: object) -> object:
        if isinstance(o, msgspec.Struct):
            return msgspec.to_builtins(o, builtin_types=(datetime, date))
        if dataclasses.is_dataclass(o):
            return {field.name: getattr(o, field.name) for field in dataclasses.fields(o)}
        return dict(o) if isinstance(o, Mapping) else super().default(o)


class AnswerRenderer(JSONRenderer):
    encoder_class = AnswerEncoder


class NamedOperations(NinjaAPI):
    """Names an operation after its function: clients are generated from the names, so moved code keeps them."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        return operation.view_func.__name__


def build_schemas(narrowed: Mapping[type, frozenset[str]]) -> tuple[dict[str, dict[int, Any]], dict[str, Any]]:
    """Return the schema of each answer by operation and status, and the schemas of the types in them by name.

    narrowed: the fields that every view keeps, of the types of which a view may omit others. All other types are
    answered with all of their fields.
    """
    kinds = [(operation, status, kind) for operation, kinds in ANSWERS.items() for status, kind in kinds.items()]
    schemas, components = msgspec.json.schema_components(
        [kind for *_, kind in kinds], ref_template="#/components/schemas/{name}"
    )
    kept = {kind.__name__: sorted(fields) for kind, fields in narrowed.items()}
    for name, schema in components.items():
        if "properties" in schema:
            # A field with a default is always written; a key of a TypedDict that may be absent has none.
            with_default = [key for key, field in schema["properties"].items() if "default" in field]
            for key in with_default:
                del schema["properties"][key]["default"]
            schema["required"] = kept.get(name) or [*schema.get("required", ()), *with_default]
            schema["additionalProperties"] = False
    answers: dict[str, dict[int, Any]] = {}
    for (operation, status, _), schema in zip(kinds, schemas, strict=True):
        answers.setdefault(operation, {})[status] = schema
    return answers, components


def build_answer(kind: type[Answer], row: object, **values: object) -> Answer:
    """Return an answer with these values, and the row's attributes of the same names for its other fields."""
    names = kind.__annotations__
    return cast(Answer, {name: getattr(row, name) for name in names if name not in values} | values)


def convert(kind: type[Answer], document: Mapping[str, Any]) -> Answer:
    """Cast another layer's document to the declared answer; tests check what types can't."""
    return cast(Answer, document)


def get_or_404(rows: QuerySet[Row], message: str, **key: object) -> Row:
    """Return the row with this key. Raises `Http404` with the message."""
    row = rows.filter(**key).first()
    if row is None:
        raise Http404(message)
    return row


def build_file_schema(description: str, *content_types: str) -> dict[str, Any]:
    """Return the `openapi_extra` of a file of one of these types."""
    content = {content_type.partition(";")[0]: {"schema": {"type": "string"}} for content_type in content_types}
    return {"responses": {200: {"description": description, "content": content}}}


EXPORTED_ROWS = build_file_schema("Rows, newest first, in `format`: CSV, or JSON lines.", CSV, JSON_LINES)
STORED_BYTES = build_file_schema("The bytes, as a file.", "application/octet-stream")
