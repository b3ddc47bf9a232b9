"""The database: its address, its limits, its version, and what is said while it is away."""

import json
import os
import subprocess
import sys
from html import unescape
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import IntegrityError, OperationalError, ProgrammingError
from django.db.migrations.recorder import MigrationRecorder

from common.errors import BadInput
from console.embedded.preparation import refuse_a_newer_database
from console.storage.database_address import build_file_url, parse_database_url
from console.storage.database_limits import hold_limits, is_away
from console.storage.migrations import list_newer_migrations
from console.upkeep import doctor
from tests.postgres import postgres_url as postgres_url  # a fixture of the tests here

pytestmark = pytest.mark.django_db


def test_one_server_is_given_up_soon():
    found = parse_database_url("postgres://weir:secret@database:5432/weir?sslmode=require")
    assert (found["HOST"], found["PORT"], found["NAME"]) == ("database", 5432, "weir")
    assert found["OPTIONS"]["sslmode"] == "require"
    assert found["OPTIONS"]["connect_timeout"] == 3
    assert "target_session_attrs" not in found["OPTIONS"]


def test_of_several_the_one_that_takes_writes_is_meant():
    found = parse_database_url("postgres://weir:s%40cret@a:5433,b/weir?connect_timeout=9")
    assert (found["HOST"], found["PORT"]) == ("a,b", "5433,5432")
    assert found["PASSWORD"] == "s@cret"
    assert found["OPTIONS"]["target_session_attrs"] == "read-write"
    assert found["OPTIONS"]["connect_timeout"] == 9


def test_a_server_may_be_an_ipv6_address():
    assert parse_database_url("postgres://weir:secret@[::1]:5433/weir")["HOST"] == "::1"
    found = parse_database_url("postgres://weir:secret@a,[::1]:5433/weir")
    assert (found["HOST"], found["PORT"]) == ("a,::1", "5432,5433")


def test_a_file_stays_a_file(tmp_path):
    assert parse_database_url(f"sqlite:///{tmp_path}/a,b")["NAME"] == f"{tmp_path}/a,b"
    odd = tmp_path / "C#, 100%41?" / "weir.sqlite3"
    assert parse_database_url(build_file_url(odd))["NAME"] == str(odd)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://weir:secret@a:1,:2/weir",
        "postgres://weir:secret@a:1,b:secret/weir",
        "postgres://weir:secret@a:secret/weir",
        "postgres://weir:secret@[::1/weir",
        "postgres://weir:secret@a,[::1/weir",
        "unknown://weir:secret@a/weir",
        "mysql://weir:secret@a,b/weir",
    ],
)
def test_what_is_none_is_refused_by_name_and_never_quoted(url):
    with pytest.raises(BadInput, match="DATABASE_URL") as refused:
        parse_database_url(url)
    assert "secret" not in str(refused.value)


ROOT = Path(__file__).resolve().parents[3]
URL = "postgres://weir:secret@database/weir"
LIMITS = {"statement_timeout": 30, "lock_timeout": 10, "idle_in_transaction_session_timeout": 60}
SAME = {name: f"{seconds}s" for name, seconds in LIMITS.items()} | {"idle_in_transaction_session_timeout": "1min"}
SHOWN = """
import json
from django.db import connection
def shown(name):
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}")
        return cursor.fetchone()[0]
print(json.dumps({name: shown(name) for name in %r}))
"""
WORK = SAME | {"statement_timeout": "0"}
BEGIN_WORKER = """
import django
import console.celery
django.setup()
from celery.signals import worker_init
worker_init.send(None)
"""
BEGIN_COMMAND = """
import django
django.setup()
from types import SimpleNamespace
from unittest import mock
from django.core.management import call_command
from console.management.commands import {0}
at_once = lambda *of: SimpleNamespace(run=lambda stop: None)
with mock.patch.multiple({0}, {1}):
    call_command("{0}")
"""
BEHIND_A_LOCK = """
from django.db import OperationalError
from console.storage.database_limits import is_over_time
from workers.models import Loop
try:
    Loop.objects.count()
except OperationalError as error:
    print("gave up" if is_over_time(error) else error)
"""
IDLE_IN_A_TRANSACTION = """
import os
import psycopg
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("BEGIN")
    cursor.execute("LOCK TABLE workers_loop IN ACCESS EXCLUSIVE MODE")
    with psycopg.connect(os.environ["DATABASE_URL"]) as other:
        other.execute("SET lock_timeout = 20000")
        other.execute("SELECT count(*) FROM workers_loop")
print("not in the way")

"""
BEGIN_OBSERVER = BEGIN_COMMAND.format("observe", "_build_observer=at_once")
IN_AN_ALERTER = ["Alerter", "AuditWatch", "ChangeKeeper", "DeadMansSwitch", "FeedReader"]
BEGIN_ALERTER = BEGIN_COMMAND.format("alert", ", ".join(f"{name}=at_once" for name in IN_AN_ALERTER))
ASKED = """
import json, sys
import console.asgi
from django.test import Client
client = Client(raise_request_exception=False)
sent = {"username": "ada", "password": "-"}
kinds = ("text/html", "application/json")
answers = [client.post("/login/", sent, headers={"Accept": kind}) for kind in kinds]
client.cookies["sessionid"] = "x" * 32
answers.append(client.get("/"))
print(json.dumps([[each.status_code, each.content.decode(), each.get("Retry-After")] for each in answers]))
"""


def limited(url, **limits):
    found = parse_database_url(url)
    hold_limits(found, LIMITS | limits)
    return found["OPTIONS"]


def test_a_page_waits_for_so_long_and_no_longer_unless_it_is_set_otherwise():
    assert settings.WEIR_DATABASE_LIMITS == LIMITS
    text = "-c statement_timeout=30000 -c lock_timeout=10000 -c idle_in_transaction_session_timeout=60000"
    assert limited(URL)["options"] == text
    assert limited(URL)["connect_timeout"] == 3
    own = limited(URL + "?options=-c%20lock_timeout%3D200", statement_timeout=0, lock_timeout=5)["options"]
    assert own == "-c lock_timeout=5000 -c idle_in_transaction_session_timeout=60000 -c lock_timeout=200"
    assert "options" not in limited(URL, **dict.fromkeys(LIMITS, 0))
    found = parse_database_url("sqlite:////srv/weir.sqlite3")
    hold_limits(found, LIMITS)
    assert "options" not in found.get("OPTIONS", {})


def run(url, data, *arguments, **set_to):
    environment = {**os.environ, "DATABASE_URL": url, "WEIR_DATA": str(data), **set_to}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("import console.asgi", SAME),
        (BEGIN_WORKER, WORK),
        pytest.param(BEGIN_OBSERVER, WORK, marks=pytest.mark.slow),
        pytest.param(BEGIN_ALERTER, WORK, marks=pytest.mark.slow),
        ("", dict.fromkeys(LIMITS, "0")),
    ],
    ids=["web", "worker", "observer", "alerter", "any other command"],
)
def test_what_runs_all_the_time_is_limited_and_a_command_is_not(postgres_url, tmp_path, before, expected):
    code = f"{before}\n{SHOWN % list(LIMITS)}"
    begun = ("-c", code) if before else ("manage.py", "shell", "-v", "0", "-c", code)
    assert json.loads(run(postgres_url, tmp_path, *begun)) == expected


@pytest.mark.slow
def test_a_worker_behind_a_lock_gives_up_and_one_that_lies_in_a_transaction_is_in_nobodys_way(postgres_url, tmp_path):
    run(postgres_url, tmp_path, "manage.py", "migrate", "-v", "0")
    limits = {"WEIR_LOCK_SECONDS": "1", "WEIR_TRANSACTION_SECONDS": "1"}
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE workers_loop IN ACCESS EXCLUSIVE MODE")
        code = f"{BEGIN_WORKER}\n{BEHIND_A_LOCK}"
        assert run(postgres_url, tmp_path, "-c", code, **limits).split() == ["gave", "up"]
    code = f"{BEGIN_WORKER}\n{IDLE_IN_A_TRANSACTION}"
    assert run(postgres_url, tmp_path, "-c", code, **limits).split() == ["not", "in", "the", "way"]


@pytest.mark.slow
def test_a_page_whose_statement_hangs_behind_a_lock_says_so(postgres_url, tmp_path):
    run(postgres_url, tmp_path, "manage.py", "migrate", "-v", "0")
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE auth_user, axes_accessattempt IN ACCESS EXCLUSIVE MODE")
        for limit in ("WEIR_LOCK_SECONDS", "WEIR_STATEMENT_SECONDS"):
            page, document, _ = json.loads(run(postgres_url, tmp_path, "-c", ASKED, **{limit: "1"}))
            assert page[0] == document[0] == 503
            said = json.loads(document[1])["detail"]
            assert said.startswith("The database did not respond in time: ") and page[2] == "5"
            assert unescape(page[1]).count(said) == 1 and "refresh" not in page[1]


def test_a_page_whose_database_is_away_says_so_and_comes_back_by_itself(tmp_path):
    sent, document, page = json.loads(run("postgres://weir:secret@127.0.0.1:1/weir", tmp_path, "-c", ASKED))
    assert sent[0] == page[0] == document[0] == 503 and page[2] == document[2] == "5"
    assert "refresh" not in sent[1] and "The outcome of your request is unknown" in sent[1]
    said = json.loads(document[1])["detail"]
    assert said.startswith("The database is not responding.") and "no loop runs" in said
    assert said in unescape(page[1]) and 'http-equiv="refresh" content="5"' in page[1]
    assert "127.0.0.1" not in page[1]


class DriverError(Exception):
    def __init__(self, **names):
        vars(self).update(names)


@pytest.mark.parametrize(
    ("error", "cause", "away"),
    [
        (OperationalError, {"sqlite_errorname": "SQLITE_BUSY"}, True),
        (OperationalError, {"sqlite_errorname": "SQLITE_IOERR_WRITE"}, True),
        (OperationalError, {"sqlite_errorname": "SQLITE_FULL"}, True),
        (OperationalError, {"sqlite_errorname": "SQLITE_ERROR"}, False),  # no such table
        (OperationalError, {"sqlstate": "57P03"}, True),
        (OperationalError, {"sqlstate": "53300"}, True),
        (OperationalError, {"sqlstate": "55P03"}, False),  # a lock that was not to be had
        (ProgrammingError, {"sqlstate": "42P01"}, False),
        (IntegrityError, {"sqlstate": "23505"}, False),
    ],
)
def test_away_is_what_keeps_all_from_the_database_and_no_fault_of_a_statement(error, cause, away):
    raised = error("no")
    raised.__cause__ = DriverError(**cause)
    assert is_away(raised) == away


def test_the_database_of_this_version_is_taken():
    assert list_newer_migrations() == []
    refuse_a_newer_database()


def test_one_of_a_newer_version_is_refused_by_what_it_has():
    MigrationRecorder.Migration.objects.create(app="console", name="9999_of_tomorrow")
    with pytest.raises(SystemExit, match=r"newer version of Weir \(migration console\.9999_of_tomorrow\)"):
        refuse_a_newer_database()
    assert "console.9999_of_tomorrow" in next(doctor.check_database()).text


def test_what_another_package_has_dropped_since_is_no_newer_weir():
    MigrationRecorder.Migration.objects.create(app="axes", name="0001_squashed")
    assert list_newer_migrations() == []


def test_every_change_of_a_model_has_its_migration(db):
    call_command("makemigrations", check_changes=True, dry_run=True, verbosity=0)
