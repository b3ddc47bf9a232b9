"""Whoever rewrites the audit past its triggers is found: raw SQLite on the real file, and PostgreSQL."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from console.audit import check
from console.audit.chain import ORIGIN, encode_canonical_entry
from queues.nodes.server import free_port
from tests.console.served import ROOT
from tests.postgres import postgres_url as postgres_url
from tests.waiting import MAX_SECONDS, until
from workers.alerts.lifecycle import automaton

pytestmark = pytest.mark.slow
ENTRIES = 30
FILL = """
from console.audit import audit_log
from console.accounts.access import Actor
for number in range({count}):
    audit_log.record(Actor("{actor}", "operator", address="192.0.2.7"), "override.set", f"loop {{number}}",
                     reason="a búrst", before={{"upper_limit": 1e3, "b": [1.5, None]}}, after={{"a": 1e22}})
"""


def environment_of(data, redis_url, database=""):
    return {
        **os.environ,
        "WEIR_DATA": str(data),
        "REDIS_URL": redis_url,
        "WEIR_SECRET_KEY": "the-signing-key-of-this-test",
        "DATABASE_URL": database or f"sqlite:///{data / 'weir.sqlite3'}",
    }


def managed(environment, *words):
    command = [sys.executable, "manage.py", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def fill(environment, actor="desk-2", count=ENTRIES):
    done = managed(environment, "shell", "-c", FILL.format(actor=actor, count=count))
    assert done.returncode == 0, done.stderr[-2_000:]


def verified(environment):
    done = managed(environment, "audit", "verify")
    assert done.returncode in (0, 1), done.stderr[-2_000:]
    document = json.loads(done.stdout)
    assert document["sound"] is (done.returncode == 0)
    return document


@pytest.fixture(scope="module")
def written(tmp_path_factory, _control_server):
    """A data folder with an audit of ENTRIES."""
    data = tmp_path_factory.mktemp("written")
    environment = environment_of(data, _control_server.url)
    assert managed(environment, "migrate", "--skip-checks", "--verbosity=0").returncode == 0
    fill(environment)
    with sqlite3.connect(data / "weir.sqlite3") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return data


@pytest.fixture
def plant(written, tmp_path):
    """The environment of a copy; its control server is away."""
    shutil.copy(written / "weir.sqlite3", tmp_path / "weir.sqlite3")
    return environment_of(tmp_path, f"redis://127.0.0.1:{free_port()}/0")


def at_the_file(plant, act):
    with sqlite3.connect(Path(plant["WEIR_DATA"]) / "weir.sqlite3") as connection:
        act(connection)
    connection.close()


def without_triggers(connection):
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")


def with_triggers_put_back(statements):
    """Drops the triggers, acts, and puts them back, as somebody careful would."""

    def act(connection):
        made = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        without_triggers(connection)
        connection.executescript(statements)
        for (text,) in made:
            connection.execute(text)

    return act


COPIED = "at, actor, action, target, reason, before, after, address, request_id, previous, digest"
ATTACKS = {
    "a field": ("altered", 7, "UPDATE console_auditentry SET actor = 'somebody else' WHERE sequence = 7"),
    "a document": ("altered", 7, "UPDATE console_auditentry SET before = '{}' WHERE sequence = 7"),
    "a time": ("altered", 7, "UPDATE console_auditentry SET at = '2026-01-01 00:00:00' WHERE sequence = 7"),
    "no time": ("altered", 7, "UPDATE console_auditentry SET at = 'soon' WHERE sequence = 7"),
    "a row removed": ("missing", 7, "DELETE FROM console_auditentry WHERE sequence = 7"),
    "rows removed and numbers closed": (
        "altered",
        7,
        "DELETE FROM console_auditentry WHERE sequence = 7;"
        "UPDATE console_auditentry SET sequence = sequence - 1 WHERE sequence > 7",
    ),
    "a row inserted": (
        "altered",
        8,
        "UPDATE console_auditentry SET sequence = -sequence WHERE sequence > 7;"
        "UPDATE console_auditentry SET sequence = 1 - sequence WHERE sequence < 0;"
        f"INSERT INTO console_auditentry (sequence, {COPIED}) SELECT 8, {COPIED} FROM console_auditentry"
        " WHERE sequence = 3",
    ),
    "a row before the first": (
        "inserted",
        0,
        f"INSERT INTO console_auditentry (sequence, {COPIED}) SELECT 0, {COPIED} FROM console_auditentry"
        " WHERE sequence = 3",
    ),
    "two rows swapped": (
        "altered",
        7,
        "UPDATE console_auditentry SET sequence = -1 WHERE sequence = 7;"
        "UPDATE console_auditentry SET sequence = 7 WHERE sequence = 9;"
        "UPDATE console_auditentry SET sequence = 9 WHERE sequence = -1",
    ),
    "the ids of two rows swapped": (
        "reordered",
        8,
        "UPDATE console_auditentry SET id = -1 WHERE sequence = 7;"
        "UPDATE console_auditentry SET id = 7 WHERE sequence = 9;"
        "UPDATE console_auditentry SET id = 9 WHERE sequence = 7",
    ),
    "replaced": (
        "altered",
        7,
        f"INSERT OR REPLACE INTO console_auditentry (id, sequence, {COPIED})"
        " SELECT 7, 7, at, 'somebody else', action, target, reason, before, after, address, request_id,"
        " previous, digest"
        " FROM console_auditentry WHERE sequence = 7",
    ),
}


CHECK_ALL = """
import json, sys
from pathlib import Path
from django.db import connection
from console.audit.check import Checker
said = {}
for folder in map(Path, json.loads(sys.stdin.readline())):
    connection.close()
    connection.settings_dict["NAME"] = str(folder / "weir.sqlite3")
    said[folder.name] = Checker(folder).step().document()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def verdicts(written, tmp_path_factory):
    """Each attack on a copy of its own, and what one process finds in all of them."""
    root = tmp_path_factory.mktemp("attacks")
    environment = environment_of(written, f"redis://127.0.0.1:{free_port()}/0")
    for attack, (_, _, statements) in ATTACKS.items():
        (root / attack).mkdir()
        shutil.copy(written / "weir.sqlite3", root / attack / "weir.sqlite3")
        at_the_file({"WEIR_DATA": str(root / attack)}, with_triggers_put_back(statements))
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "-c", CHECK_ALL], cwd=ROOT, env=environment,
        input=json.dumps([str(root / attack) for attack in ATTACKS]) + "\n", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_was_done_to_the_database_file_is_found(attack, verdicts):
    kind, sequence, _ = ATTACKS[attack]
    found = verdicts[attack]["findings"]
    assert found and (found[0]["kind"], found[0]["sequence"]) == (kind, sequence), found


def test_the_untouched_audit_is_whole(plant):
    verdict = verified(plant)
    assert (verdict["entries"], verdict["verified"], verdict["findings"]) == (ENTRIES, ENTRIES, [])


def test_insert_or_replace_is_refused_while_the_triggers_are_there(plant):
    def replace(connection):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(ATTACKS["replaced"][2])

    at_the_file(plant, replace)
    assert verified(plant)["findings"] == []


def test_a_missing_trigger_is_found(plant):
    at_the_file(plant, without_triggers)
    assert {each["kind"] for each in verified(plant)["findings"]} == {"unprotected"}


def test_a_tail_that_is_cut_off_is_missed_by_the_control_server(written, tmp_path, _control_server):
    shutil.copy(written / "weir.sqlite3", tmp_path / "weir.sqlite3")
    plant = environment_of(tmp_path, _control_server.url)
    _control_server.client().flushall()
    fill(plant, count=1)
    cut = f"DELETE FROM console_auditentry WHERE sequence > {ENTRIES - 2}"
    at_the_file(plant, with_triggers_put_back(cut))
    (finding,) = verified(plant)["findings"]
    assert (finding["kind"], finding["sequence"]) == ("cut", ENTRIES - 1)
    assert f"{ENTRIES - 1} to {ENTRIES + 1}" in finding["text"]

    refused = managed(plant, "audit", "accept")
    assert refused.returncode == 2 and "reason" in refused.stderr
    done = managed(plant, "audit", "accept", "--reason", "restored from the backup of last night")
    assert done.returncode == 0, done.stdout
    assert verified(plant)["findings"] == []


def test_a_head_without_a_seal_is_found(plant):
    heads = Path(plant["WEIR_DATA"]) / "audit-heads.jsonl"
    heads.write_text(json.dumps({"sequence": 1, "digest": "0" * 64, "seal": "0" * 64}) + "\n")
    assert [each["kind"] for each in verified(plant)["findings"]] == ["forged"]


def test_accepting_one_alteration_does_not_hide_the_next(plant):
    at_the_file(plant, with_triggers_put_back(ATTACKS["a field"][2]))
    assert managed(plant, "audit", "accept", "--reason", "a test").returncode == 0
    at_the_file(plant, with_triggers_put_back(ATTACKS["a field"][2].replace("somebody", "nobody")))
    verdict = verified(plant)
    assert [each["sequence"] for each in verdict["findings"]] == [7]


def test_another_signing_key_verifies_nothing_and_the_old_one_as_second_word_everything(plant):
    other = {**plant, "WEIR_SECRET_KEY": "another"}
    assert len(verified(other)["findings"]) == ENTRIES
    both = {**other, "WEIR_AUDIT_KEY": "another the_signing_key"}
    assert not verified(both)["sound"]
    old = {**plant, "WEIR_SECRET_KEY": "thesigningkey"}
    assert not verified(old)["sound"]


def test_two_processes_write_one_chain(plant):
    together(plant)
    assert verified(plant)["entries"] == ENTRIES + 120


def together(environment):
    """Two processes write 60 entries each at once."""
    writers = [
        subprocess.Popen(
            [sys.executable, "manage.py", "shell", "-c", FILL.format(actor=name, count=60)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("desk-2", "desk-3")
    ]
    for writer in writers:
        _, said = writer.communicate(timeout=120)
        assert writer.returncode == 0, said[-2_000:]


def test_what_a_digest_covers_does_not_depend_on_how_a_database_spells_it():
    at = datetime(2026, 11, 22, 8, tzinfo=UTC)
    content = dict.fromkeys(("actor", "action", "target", "reason", "request_id"), "x") | {
        "at": at,
        "address": "::ffff:10.0.0.1",
        "before": {"b": 1e2, "a": (1, 2.5)},
        "after": {1: -0.0},
    }
    spelt = content | {"address": "::FFFF:a00:1", "before": {"a": [1, 2.5], "b": 100}, "after": {"1": 0}}
    assert encode_canonical_entry(content, 1, ORIGIN) == encode_canonical_entry(spelt, 1, ORIGIN)
    assert encode_canonical_entry(content, 1, ORIGIN) != encode_canonical_entry(
        content | {"after": {"1": 1}}, 1, ORIGIN
    )


FIRING = "SELECT sentence FROM workers_alert WHERE rule_name = 'audit-altered' AND state = 'firing'"


@pytest.mark.timeout(400)
def test_an_altered_row_is_an_alert_within_a_minute(written, tmp_path, control_server):
    """With the real process: the file is altered behind its back right after a check that found it whole."""
    shutil.copy(written / "weir.sqlite3", tmp_path / "weir.sqlite3")
    plant, control = environment_of(tmp_path, control_server.url), control_server.client()
    assert managed(plant, "seed").returncode == 0

    def found():
        return json.loads(control.get("weir:audit:verdict") or "{}")

    def alerts():
        with closing(sqlite3.connect(tmp_path / "weir.sqlite3")) as connection:
            return connection.execute(FIRING).fetchall()

    process = subprocess.Popen([sys.executable, "manage.py", "alert"], cwd=ROOT, env=plant)
    try:
        until(lambda: found().get("sound"), 200)
        assert not alerts()
        at_the_file(plant, with_triggers_put_back(ATTACKS["a field"][2]))
        checks = {found()["at"]}
        ((sentence,),) = until(lambda: checks.add(found()["at"]) or alerts(), every_seconds=0.5)
    finally:
        process.terminate()
        process.wait(MAX_SECONDS)
    assert "does not match its digest" in sentence
    assert len(checks) <= 3, "the check before, the one that finds it, and at most one beside the alert"
    assert check.CHECK_SECONDS + check.BUDGET_SECONDS + automaton.CHECK_SECONDS < 60


# On PostgreSQL.


@pytest.fixture(scope="module")
def postgres(postgres_url, tmp_path_factory):
    data = tmp_path_factory.mktemp("postgres")
    environment = environment_of(data, f"redis://127.0.0.1:{free_port()}/0", postgres_url)
    environment["APPLICATION_PASSWORD"] = "a password of the application"
    assert managed(environment, "migrate", "--skip-checks", "--verbosity=0").returncode == 0
    done = managed(environment, "database_roles", "weir_app", "--password-environment", "APPLICATION_PASSWORD")
    assert done.returncode == 0, done.stderr[-2_000:]
    return environment


def as_application(postgres):
    host = postgres["DATABASE_URL"].partition("@")[2]
    return {**postgres, "DATABASE_URL": f"postgresql://weir_app@{host}"}


def test_on_postgresql_the_application_writes_one_chain_from_two_processes(postgres):
    application = as_application(postgres)
    together(application)
    verdict = verified(application)
    assert (verdict["entries"], verdict["findings"]) == (120, [])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE console_auditentry SET actor = 'x'",
        "DELETE FROM console_auditentry",
        "TRUNCATE console_auditentry",
        "ALTER TABLE console_auditentry DISABLE TRIGGER ALL",
        "DROP TRIGGER console_auditentry_rows ON console_auditentry",
        "DROP TABLE console_auditentry",
        "ALTER TABLE console_auditentry OWNER TO weir_app",
        "INSERT INTO django_migrations (app, name, applied) VALUES ('a', 'b', now())",
        "CREATE TABLE another (a integer)",
        "INSERT INTO console_auditentry SELECT * FROM console_auditentry LIMIT 1"
        " ON CONFLICT (id) DO UPDATE SET actor = 'x'",
        "SET session_replication_role = replica",
    ],
)
def test_on_postgresql_the_application_may_only_add_to_the_audit(statement, postgres):
    with (
        psycopg.connect(as_application(postgres)["DATABASE_URL"]) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement)


@pytest.mark.parametrize("change", ["UPDATE {} SET actor = 'x'", "DELETE FROM {}", "TRUNCATE {}"])
def test_on_postgresql_the_audit_refuses_every_change_of_its_owner_too(change, postgres):
    fill(as_application(postgres), count=1)
    with (
        psycopg.connect(postgres["DATABASE_URL"]) as connection,
        pytest.raises(psycopg.errors.RaiseException, match="append-only"),
    ):
        connection.execute(change.format("console_auditentry"))


def test_on_postgresql_what_the_owner_rewrites_is_found(postgres):
    fill(as_application(postgres), count=5)
    with psycopg.connect(postgres["DATABASE_URL"]) as connection:
        connection.execute("ALTER TABLE console_auditentry DISABLE TRIGGER ALL")
        connection.execute("UPDATE console_auditentry SET reason = 'another' WHERE sequence = 3")
    kinds = {(each["kind"], each["sequence"]) for each in verified(as_application(postgres))["findings"]}
    assert ("altered", 3) in kinds and ("unprotected", 0) in kinds
