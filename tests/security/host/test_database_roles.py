"""A worker that is taken over can't reach accounts through PostgreSQL, and earlier grants don't stay."""

import os
import subprocess
import sys

import psycopg
import pytest

from console.storage.worker_tables import HIDDEN, READ, WRITTEN, list_table_access
from tests.console.served import ROOT
from tests.postgres import postgres_url as postgres_url

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
# Each is a way from the database to an account, or to what was recorded about people.
TAKEOVERS = {
    "set a password": "UPDATE auth_user SET password = 'x'",
    "become an administrator": "UPDATE auth_user SET is_superuser = true",
    "join a group": "INSERT INTO auth_user_groups (user_id, group_id) VALUES (1, 1)",
    "make a token": "INSERT INTO console_apitoken (name) VALUES ('x')",
    "widen a token": "UPDATE console_apitoken SET role = 'administrator'",
    "lift a limit": "DELETE FROM console_queuelimit",
    "remove a second factor": "DELETE FROM otp_totp_totpdevice",
    "read second factors": "SELECT key FROM otp_totp_totpdevice",
    "read recovery codes": "SELECT digest FROM console_recoverycode",
    "read passkeys": "SELECT public_key FROM console_passkey",
    "read sessions": "SELECT session_data FROM console_session",
    "keep a session alive": "UPDATE console_usersession SET seen_at = now()",
    "read kept answers": "SELECT body FROM console_submission",
    "end a lockout": "DELETE FROM axes_accessattempt",
    "take over an identity": "UPDATE console_identity SET subject = 'x'",
    "approve a proposal": "UPDATE console_assistantproposal SET state = 'approved'",
    "open a shared link again": "UPDATE console_sharedlink SET ended_at = NULL",
    "add to the audit": "INSERT INTO console_auditentry (actor) VALUES ('x')",
    "change the audit": "UPDATE console_auditentry SET actor = 'x'",
    "turn triggers off": "SET session_replication_role = replica",
    "read a file": "SELECT pg_read_file('/etc/passwd')",
    "import a file": "SELECT lo_import('/etc/passwd')",
    "copy from a program": "COPY workers_setting FROM PROGRAM 'id'",
    "copy to a file": "COPY workers_setting TO '/tmp/x'",
    "shadow a function": "CREATE FUNCTION public.now() RETURNS text LANGUAGE sql AS 'SELECT NULL'",
    "make a schema": "CREATE SCHEMA weir",
    "make a role": "CREATE ROLE another",
    "become the owner": "SET ROLE {owner}",
    "set another's search path": "ALTER ROLE {owner} SET search_path = pg_temp",
    "replace the trigger's function": "CREATE OR REPLACE FUNCTION console_auditentry_refuse() RETURNS trigger"
    " LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
}


def managed(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "manage.py", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def owner(postgres_url, _control_server, tmp_path_factory):
    environment = {
        **os.environ,
        "WEIR_DATA": str(tmp_path_factory.mktemp("data")),
        "REDIS_URL": _control_server.url,
        "WEIR_SECRET_KEY": "the-signing-key-of-this-test",
        "WEIR_ADMIN_PASSWORD": "the first password of an administrator",
        "DATABASE_URL": postgres_url,
        "WEIR_NODES": f"n1={_control_server.url}",
    }
    assert managed(environment, "migrate", "--skip-checks", "--verbosity=0").returncode == 0
    for words in (["weir_app"], ["weir_workers", "--workers"]):
        done = managed(environment, "database_roles", *words)
        assert done.returncode == 0, done.stderr[-2_000:]
    seeded = managed(environment, "seed")
    assert seeded.returncode == 0, seeded.stderr[-2_000:]
    return environment


def as_role(owner: dict[str, str], role: str) -> str:
    return f"postgresql://{role}@{owner['DATABASE_URL'].partition('@')[2]}"


@pytest.fixture
def prompt(owner):
    with psycopg.connect(owner["DATABASE_URL"], autocommit=True) as connection:
        yield connection


def test_the_database_grants_what_is_declared_of_each_table(owner):
    changes, reading = ("INSERT", "UPDATE", "DELETE"), ("SELECT",)
    expected = {
        table: {WRITTEN: {*changes, *reading}, READ: {*reading}, HIDDEN: set()}[access]
        for table, access in list_table_access().items()
    }
    asked = "SELECT has_table_privilege(%s, %s)"
    with psycopg.connect(as_role(owner, "weir_workers")) as connection:
        granted = {
            table: {
                right
                for right in (*changes, *reading, "TRUNCATE", "REFERENCES", "TRIGGER")
                if connection.execute(asked, [table, right]).fetchone() == (True,)
            }
            for table in expected
        }
    assert granted == expected


@pytest.mark.parametrize("statement", TAKEOVERS.values(), ids=TAKEOVERS)
def test_the_workers_role_reaches_no_account_file_or_other_role(statement, owner):
    name = owner["DATABASE_URL"].partition("://")[2].partition("@")[0]
    with (
        psycopg.connect(as_role(owner, "weir_workers")) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement.format(owner=name))


def test_an_earlier_grant_of_any_kind_does_not_stay(owner, prompt):
    prompt.execute("CREATE ROLE weir_granted LOGIN")
    prompt.execute("GRANT ALL ON SCHEMA public TO weir_granted")
    prompt.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO weir_granted")
    prompt.execute("GRANT UPDATE (password) ON auth_user TO weir_granted")
    prompt.execute("GRANT CREATE ON DATABASE postgres TO weir_granted")
    assert managed(owner, "database_roles", "weir_granted", "--workers").returncode == 0
    with psycopg.connect(as_role(owner, "weir_granted"), autocommit=True) as connection:
        for statement in (
            "CREATE TABLE public.another (a integer)",
            "SELECT setval('console_auditentry_id_seq', 1)",
            "UPDATE auth_user SET password = 'x'",
            "CREATE SCHEMA another",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


@pytest.mark.parametrize(
    ("given", "taken", "said"),
    [
        (
            "GRANT pg_read_server_files TO weir_more",
            "REVOKE pg_read_server_files FROM weir_more",
            "pg_read_server_files",
        ),
        ("GRANT {owner} TO weir_more", "REVOKE {owner} FROM weir_more", "is a member of"),
        (
            "ALTER TABLE console_auditentry OWNER TO weir_more",
            "ALTER TABLE console_auditentry OWNER TO {owner}",
            "owns console_auditentry",
        ),
        (
            "ALTER FUNCTION console_auditentry_refuse() OWNER TO weir_more",
            "ALTER FUNCTION console_auditentry_refuse() OWNER TO {owner}",
            "owns console_auditentry_refuse",
        ),
    ],
)
def test_a_role_with_rights_that_no_revocation_takes_is_refused(given, taken, said, owner, prompt):
    name = prompt.info.user
    prompt.execute("DROP ROLE IF EXISTS weir_more")
    prompt.execute("CREATE ROLE weir_more LOGIN")
    prompt.execute(given.format(owner=name))
    try:
        done = managed(owner, "database_roles", "weir_more")
        assert done.returncode == 2
        assert said in done.stderr
    finally:
        prompt.execute(taken.format(owner=name))
