"""The access of a database role for workers to each table: read and write it, read it, or neither.

This is the only declaration. An app's tables belong to one kind of access; the console's own tables are listed one by
one. A table that is listed nowhere raises TableUndeclaredError, so a new model needs a decision here. `manage.py
database_roles --workers` grants the access.
"""

from functools import cache

from django.apps import apps

WRITTEN, READ, HIDDEN = "written", "read", "hidden"
APPS = {
    "queues": WRITTEN,
    "workers": WRITTEN,
    "django_celery_beat": WRITTEN,  # beat and the batch tasks keep their schedule here
    "auth": READ,
    "contenttypes": READ,
    "axes": HIDDEN,
    "otp_totp": HIDDEN,
    "sessions": HIDDEN,
}
CONSOLE_TABLES = {
    "console_mark": WRITTEN,  # the observer marks rollouts at other plants
    "console_drill": WRITTEN,  # the alerter starts the drills that are due
    "console_auditentry": READ,  # the alerter checks the chain and finds what changed before an incident
    "console_apitoken": READ,
    "console_assistantproposal": READ,
    "console_identity": READ,
    "console_queuelimit": READ,
    "console_savedfilter": READ,
    "console_userpreferences": READ,
    "console_sharedlink": READ,
    "console_passkey": HIDDEN,
    "console_recoverycode": HIDDEN,
    "console_session": HIDDEN,
    "console_submission": HIDDEN,
    "console_usersession": HIDDEN,
}


class TableUndeclaredError(LookupError):
    """A table for which nobody has declared what workers may do with it."""


@cache
def list_table_access() -> dict[str, str]:
    """Return what a role for workers may do with each table. Raise TableUndeclaredError."""
    metas = [model._meta for model in apps.get_models(include_auto_created=True)]
    return {meta.db_table: get_declared_access(meta.app_label, meta.db_table) for meta in metas if not meta.proxy}


def list_tables_by_access(access: str) -> list[str]:
    """Return the tables with this kind of access, by name."""
    return sorted(table for table, declared in list_table_access().items() if declared == access)


def get_declared_access(app: str, table: str) -> str:
    """Return what a role for workers may do with an app's table. Raise TableUndeclaredError."""
    declared = CONSOLE_TABLES.get(table) or APPS.get(app)
    if declared is None:
        raise TableUndeclaredError(f"Add {table} to APPS or CONSOLE_TABLES in {__name__}.")
    return declared
