"""What workers may do with each table is declared once, for all tables, and every test enforces it."""

import pytest
from django.contrib.auth.models import User
from django.db import ProgrammingError

from console.storage.worker_tables import (
    APPS,
    CONSOLE_TABLES,
    HIDDEN,
    READ,
    WRITTEN,
    TableUndeclaredError,
    get_declared_access,
    list_table_access,
    list_tables_by_access,
)
from tests.worker_role import ROOT, refused_table

# What opens an account, lets somebody act, or records who did.
OF_ACCOUNTS = {
    *("auth_user", "auth_group", "auth_permission", "django_content_type"),
    *("auth_user_groups", "auth_user_user_permissions", "auth_group_permissions"),
    *("axes_accessattempt", "axes_accessattemptexpiration", "axes_accessfailurelog", "axes_accesslog"),
    *("otp_totp_totpdevice", "django_session", "console_session", "console_usersession"),
    *("console_apitoken", "console_identity", "console_passkey", "console_recoverycode", "console_queuelimit"),
    *("console_assistantproposal", "console_savedfilter", "console_sharedlink", "console_submission"),
    *("console_auditentry", "console_userpreferences"),
}


def test_workers_may_write_every_table_but_those_of_accounts():
    assert set(list_table_access()) - set(list_tables_by_access(WRITTEN)) == OF_ACCOUNTS


def test_each_declared_name_is_that_of_a_table_or_an_app():
    assert CONSOLE_TABLES.keys() <= list_table_access().keys()
    assert {*APPS.values(), *CONSOLE_TABLES.values()} == {WRITTEN, READ, HIDDEN}


@pytest.mark.parametrize(
    ("app", "table", "access"),
    [
        ("workers", "workers_invented", WRITTEN),
        ("queues", "queues_invented", WRITTEN),
        ("sessions", "django_invented", HIDDEN),
    ],
)
def test_a_new_table_of_a_known_app_has_the_access_of_its_app(app, table, access):
    assert get_declared_access(app, table) == access


@pytest.mark.parametrize(("app", "table"), [("console", "console_invented"), ("invented", "invented_row")])
def test_a_new_table_of_the_console_or_a_new_app_needs_a_declaration(app, table):
    with pytest.raises(TableUndeclaredError, match=f"Add {table} to"):
        get_declared_access(app, table)


@pytest.mark.parametrize(
    ("statement", "refused"),
    [
        ('UPDATE "auth_user" SET "password" = %s', "auth_user"),
        ('INSERT INTO "console_auditentry" ("at") VALUES (%s)', "console_auditentry"),
        ('DELETE FROM "console_apitoken" WHERE 1 = 1', "console_apitoken"),
        ('SELECT "key" FROM "otp_totp_totpdevice"', "otp_totp_totpdevice"),
        ('SELECT 1 FROM "workers_override" JOIN "console_session" ON 1 = 1', "console_session"),
        ('SELECT 1 FROM "auth_user" FOR UPDATE', "auth_user"),
        ('SELECT 1 FROM "workers_override" JOIN "auth_user" ON 1 = 1 FOR UPDATE', "auth_user"),
        ('SELECT 1 FROM "workers_override" JOIN "auth_user" ON 1 = 1 FOR UPDATE OF "workers_override"', ""),
        ('SELECT "username" FROM "auth_user"', ""),
        ('INSERT INTO "console_mark" ("at") VALUES (%s)', ""),
        ('UPDATE "django_celery_beat_periodictask" SET "enabled" = %s', ""),
        ('DELETE FROM "workers_ledgerentry" WHERE "id" IN (SELECT "id" FROM "workers_loop")', ""),
    ],
)
def test_tests_refuse_a_statement_as_postgresql_would(statement, refused):
    assert refused_table(statement) == refused


def function_in(place):
    """Return a function that calls what it is given, as if it stood in this file."""
    names = {}
    exec(compile("def call(work): return work()", f"{ROOT}/{place}", "exec"), names)
    return names["call"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "place", ["workers/invented.py", "queues/invented.py", "console/audit/watch.py", "console/timeline/rollouts.py"]
)
def test_a_test_fails_when_a_worker_writes_an_account(place):
    assert function_in(place)(User.objects.count) == 0
    with pytest.raises(ProgrammingError, match="permission denied for table auth_user"):
        function_in(place)(lambda: User.objects.filter(pk=1).update(password="x"))


@pytest.mark.django_db
def test_the_console_writes_accounts_also_where_workers_call_it_back():
    console, workers = function_in("console/invented.py"), function_in("workers/invented.py")
    write = User.objects.filter(pk=1)
    assert console(lambda: write.update(password="x")) == 0
    assert workers(lambda: console(lambda: write.update(password="x"))) == 0
