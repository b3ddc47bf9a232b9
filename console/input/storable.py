"""The text and the numbers that a database can store.

Others are rejected with their field before writing: SQLite stores them, and PostgreSQL fails. Text is UTF-8 without NUL
(PostgreSQL stores none) and without lone surrogates.
"""

import math
from collections.abc import Collection

from django.apps import apps
from django.db import models
from django.db.backends.base.operations import BaseDatabaseOperations
from django.db.models.signals import pre_save

from common.checks import UNSTORABLE_CHARACTER
from common.errors import BadInput

UNSTORABLE = "must be UTF-8 text without NUL characters or unpaired surrogates."


def is_plain(text: str) -> bool:
    """Return whether every database and every file can store the text."""
    return UNSTORABLE_CHARACTER.search(text) is None


OURS = ("console", "queues", "workers")


def connect() -> None:
    """Validate every row of our own applications when it is saved."""
    for name in OURS:
        for model in apps.get_app_config(name).get_models():
            pre_save.connect(check_row, sender=model, dispatch_uid=f"row bounds of {model._meta.label}")


def check_row(
    sender: type[models.Model], instance: models.Model, update_fields: Collection[str] | None = None, **_: object
) -> None:
    """Raise `BadInput` that names the first field whose value its column can't store."""
    for field in sender._meta.concrete_fields:
        if update_fields is None or field.name in update_fields:
            _check(field, instance.__dict__.get(field.attname))


def _check(field: object, value: object) -> None:
    if isinstance(value, str) and isinstance(field, models.CharField | models.TextField):
        if not is_plain(value):
            raise BadInput(field.name, UNSTORABLE)
        if field.max_length is not None and len(value) > field.max_length:
            raise BadInput(field.name, f"must have at most {field.max_length} characters, not {len(value)}.")
    elif isinstance(value, int | float) and isinstance(field, models.IntegerField | models.FloatField):
        least, most = BaseDatabaseOperations.integer_field_ranges.get(field.get_internal_type(), (-math.inf, math.inf))
        if math.isfinite(value) and least <= value <= most:
            return
        if isinstance(field, models.FloatField):
            raise BadInput(field.name, f"must be a finite number, not {value}.")
        raise BadInput(field.name, f"must be {least} to {most}, not {value}.")
