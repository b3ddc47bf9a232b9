"""The rows of all tables, as lines of JSON, and back: on SQLite and PostgreSQL, from either to either.

A backup names the migrations it was made with. In a newer Weir its rows are loaded into the tables of that time, and
later migrations are applied to them, as in an upgrade.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol

import orjson
from django.apps import apps
from django.core.management import call_command
from django.core.management.color import no_style
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from common.errors import BadInput
from console.storage import append_only
from workers.coordination.packed_json import PackedJSONField

AT_ONCE = 1_000
# Login sessions are left out; permissions are created by the migrations.
PASSING = {
    "console.session",
    "console.usersession",
    "sessions.session",
    "contenttypes.contenttype",
    "auth.permission",
    "axes.accesslog",
}
DOCUMENTS = (models.JSONField, PackedJSONField)
Field = Any  # Django's own class is generic only for type checkers
Migration = tuple[str, str]


def list_applied() -> list[Migration]:
    """Return the migrations that this database has."""
    return sorted(MigrationRecorder(connection).applied_migrations())


def is_complete() -> bool:
    """Return whether the tables are those of this code."""
    executor = MigrationExecutor(connection)
    return not executor.migration_plan(executor.loader.graph.leaf_nodes())


class ModelSource(Protocol):
    """The models of this code, or those of a migration."""

    def get_models(self, include_auto_created: bool = ...) -> Iterable[type[models.Model]]: ...


def list_models(models_of: ModelSource = apps) -> list[type[models.Model]]:
    """Return the models whose rows a backup contains, referenced ones first."""
    remaining = [
        model
        for model in models_of.get_models(include_auto_created=True)
        if model._meta.managed and not model._meta.proxy and model._meta.label_lower not in PASSING
    ]
    ordered: list[type[models.Model]] = []
    while remaining:
        ready = [model for model in remaining if not _needs(model) & {other._meta.label for other in remaining}]
        if not ready:
            raise TypeError(f"{[model._meta.label for model in remaining]} have circular references.")
        ordered += sorted(ready, key=lambda model: model._meta.label)
        remaining = [model for model in remaining if model not in ready]
    return ordered


def _needs(model: type[models.Model]) -> set[str]:
    """Return the models that must be restored first.

    An optional reference can be to a later row: the database checks references at the end of the transaction.
    """
    relations = [field for field in model._meta.local_fields if field.is_relation and not field.null]
    others: list[Any] = [field.related_model for field in relations]
    related = {other._meta.label for other in others if other is not None}
    return related - {model._meta.label}


def encode_rows(model: type[models.Model]) -> Iterator[bytes]:
    """Yield the names of the fields, then each row as a list of their values."""
    columns = list_fields(model)
    yield orjson.dumps([field.attname for field in columns])
    for row in model._base_manager.order_by("pk").iterator(chunk_size=AT_ONCE):
        yield orjson.dumps([_format_value(field, row) for field in columns])


def list_fields(model: type[models.Model]) -> list[Field]:
    return list(model._meta.local_concrete_fields)


def _format_value(field: Field, row: models.Model) -> object:
    """Return a value as the text of Django's serializers; a document as a document's text."""
    value = field.value_from_object(row)
    if value is None:
        return None
    if isinstance(field, DOCUMENTS):
        return json.dumps(value, cls=DjangoJSONEncoder)
    return field.value_to_string(row)


def _read(field: Field, text: str | None) -> object:
    if text is None:
        return None
    if isinstance(field, DOCUMENTS):
        return json.loads(text)
    target = field.target_field if isinstance(field, models.ForeignKey) else field
    return target.to_python(text)


def check_known(migrations: Iterable[Migration]) -> None:
    """Raise `BadInput` if the backup has migrations that this code has not: it is of a newer Weir."""
    known = set(MigrationExecutor(connection).loader.disk_migrations)
    newer = sorted(f"{app}.{name}" for app, name in set(migrations) - known)
    if newer:
        raise BadInput(
            "FILE", f"was made by a newer version of Weir (it has {newer[0]}). Install that version, then restore."
        )


def migrate_to(migrations: Iterable[Migration]) -> ModelSource:
    """Migrate tables to the state of the backup; return their models. Raises `BadInput`."""
    wanted = set(migrations)
    check_known(wanted)
    executor = MigrationExecutor(connection)
    graph = executor.loader.graph
    last = [node for node in wanted if not {child.key for child in graph.node_map[node].children} & wanted]
    executor.migrate(last)
    state = MigrationExecutor(connection).loader.project_state(last)
    return state.apps


def migrate_forward() -> None:
    call_command("migrate", verbosity=0, interactive=False)


def clear(tables: list[type[models.Model]]) -> None:
    """Delete the rows of migrations and a first start: the backup's rows replace them."""
    for model in reversed(tables):
        model._base_manager.all()._raw_delete(connection.alias)


def load(model: type[models.Model], lines: Iterator[bytes]) -> int:
    """Write the rows that `rows` returned; return their number. Raises `KeyError` if a field is not the model's."""
    by_name = {field.attname: field for field in list_fields(model)}
    names, count = orjson.loads(next(lines)), 0
    columns = [by_name[name] for name in names]
    made = (model(**dict(zip(names, map(_read, columns, orjson.loads(line)), strict=True))) for line in lines)
    with _as_given(columns):
        while chunk := list(islice(made, AT_ONCE)):
            model._base_manager.bulk_create(chunk)
            count += len(chunk)
    return count


@contextmanager
def _as_given(columns: list[Field]) -> Iterator[None]:
    """Keep the backup's creation and change times, instead of now."""
    kinds = ("auto_now", "auto_now_add")
    automatic = [(field, kind) for field in columns for kind in kinds if getattr(field, kind, False)]
    for field, kind in automatic:
        setattr(field, kind, False)
    try:
        yield
    finally:
        for field, kind in automatic:
            setattr(field, kind, True)


def count_on(tables: list[type[models.Model]]) -> None:
    """Let the database number new rows after the highest restored number."""
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), tables):
            cursor.execute(statement)


def protect(on: bool) -> None:
    """Protect the audit log's rows once they are restored."""
    with connection.cursor() as cursor:
        for statement in (append_only.protect if on else append_only.release)(connection.vendor):
            cursor.execute(statement)
