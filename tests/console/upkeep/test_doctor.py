"""manage.py doctor names what is wrong and what to do, on real servers, and says no secret."""

import io
import json
import time

import pytest
import redis
from django.core.management import call_command
from django.db import connection

from console.upkeep import doctor
from queues import keys
from queues.topology import NodeSpec, Topology
from tests.servers import new_server

pytestmark = pytest.mark.django_db
SECRET = "the-only-password-of-n9"


@pytest.fixture(autouse=True)
def data(tmp_path, settings):
    tmp_path.chmod(0o700)
    settings.WEIR_DATA = tmp_path
    return tmp_path


@pytest.fixture
def bare(tmp_path):
    server = new_server(tmp_path / "bare", appendonly=False)
    yield server
    server.close()


def texts(check):
    return [each.text for each in check()]


def with_node(control, url):
    control.set(keys.TOPOLOGY, Topology(1, {"n9": NodeSpec("n9", url)}, {}).to_json())


def rows_of(name):
    return [row for row in doctor.report()["symptoms"] if row["check"] == name]


def test_nothing_is_wrong_with_servers_as_weir_starts_them(plant_topology):
    assert texts(doctor.control_server) == []
    assert texts(doctor.check_nodes) == []
    assert texts(doctor.audit) == []
    # Tests own their tables, which on PostgreSQL is worth a warning.
    owner = ["The console connects as the owner of its tables: it could drop the audit log's triggers."]
    assert texts(doctor.check_database) == (owner if connection.vendor == "postgresql" else [])


def test_a_node_that_does_not_persist_drops_keys_or_has_no_limit_is_named(control, bare):
    with_node(control, bare.url)
    bare.client().config_set("maxmemory-policy", "allkeys-lru")
    bare.client().config_set("maxmemory", 0)
    persists, policy, limit = doctor.check_nodes()
    assert (persists.severity, persists.subject) == ("error", "node n9")
    assert "appendonly yes" in persists.remedy
    assert "allkeys-lru" in policy.text
    assert limit.severity == "warning"


def test_a_server_whose_memory_is_full_is_an_error_and_one_that_fills_a_warning(control):
    control.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError):
        control.set("weir:x", "y")
    (full,) = doctor.control_server()
    assert (full.severity, full.subject) == ("error", "the control server")
    assert "rejects all writes" in full.text
    control.config_set("maxmemory", 0)
    for used, severities in ((89, []), (90, ["warning"]), (99, ["warning"]), (100, ["error"])):
        about = {"used_memory": used + 5, "mem_not_counted_for_evict": 5, "maxmemory": 100}
        assert [each.severity for each in doctor._check_memory_limit("n1", about)] == severities


def test_a_node_that_refuses_or_is_gone_is_named_without_its_password(control, bare):
    bare.client().config_set("requirepass", "another-password-than-n9s")
    with_node(control, bare.url.replace("://", f"://:{SECRET}@"))
    (refused,) = rows_of("nodes")
    assert refused["subject"] == "node n9"
    assert "WEIR_NODE_LOGIN" in refused["remedy"]
    bare.kill()
    with_node(control, bare.url.replace("://", f"://:{SECRET}2@"))
    (gone,) = rows_of("nodes")
    assert gone["severity"] == "error"
    assert SECRET not in json.dumps([refused, gone])


@pytest.mark.parametrize("ahead_seconds", [-600.0, -61.0, 61.0, 600.0])
def test_a_clock_that_is_off_by_more_than_a_minute_is_named(control, monkeypatch, ahead_seconds):
    now = time.time
    monkeypatch.setattr(doctor.time, "time", lambda: now() - ahead_seconds)
    (symptom,) = doctor.control_server()
    assert "The clock of the control server is" in symptom.text
    assert ("ahead of" in symptom.text) is (ahead_seconds > 0)
    assert "NTP" in symptom.remedy


def test_each_node_whose_agent_is_not_heard_is_named_though_its_server_answers(control, stored_snapshot):
    assert texts(doctor.check_node_agents) == []
    stored_snapshot["nodes"]["n1"].update(state="OFFLINE", age_seconds=90.0)
    control.set(keys.SNAPSHOT, json.dumps(stored_snapshot))
    (silent,) = doctor.check_node_agents()
    assert (silent.severity, silent.subject) == ("error", "node n1")
    assert silent.text == "The agent of node n1 has not reported for 90 s."
    assert "queues.nodes.agent n1" in silent.remedy
    stored_snapshot["at"] -= 60
    control.set(keys.SNAPSHOT, json.dumps(stored_snapshot))
    assert texts(doctor.check_node_agents) == [], "what nobody observes is not known"


def test_a_guessable_secret_is_named_by_its_variable_only(monkeypatch):
    monkeypatch.setenv("WEIR_SPARK_SECRET", "hunter2")
    (symptom,) = doctor.check_secrets()
    assert symptom.subject == "WEIR_SPARK_SECRET"
    assert "hunter2" not in repr(symptom)


def test_files_that_others_may_open_are_named_with_the_command_that_closes_them(data):
    (data / "secret-key").write_text("k" * 50)
    (data / "secret-key").chmod(0o644)
    named = [each for each in doctor.check_data_folder() if each.subject == "secret-key"]
    assert [each.remedy for each in named] == [f"chmod 600 {data / 'secret-key'}"]


def test_a_full_disk_is_an_error_and_one_that_fills_a_warning(monkeypatch):
    usage = type(doctor.shutil.disk_usage("/"))
    for free, severity in ((1, "error"), (5, "warning")):
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _, free=free: usage(100, 100 - free, free))
        assert [each.severity for each in doctor.check_data_folder()] == [severity]


def test_the_command_ends_with_1_and_says_what_does_not_run(control, monkeypatch):
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("doctor", "--json", stdout=out)
    found = json.loads(out.getvalue())
    assert ended.value.code == 1
    assert found["checks"] == list(doctor.CHECKS)
    assert any("observer" in row["subject"] for row in found["symptoms"])
    assert all(row["remedy"] for row in found["symptoms"])


def test_a_control_server_that_is_gone_is_an_answer_not_a_traceback(settings):
    settings.REDIS_URL = f"redis://:{SECRET}@127.0.0.1:1/0"
    found = doctor.report()
    assert not found["ok"]
    assert {"control server", "nodes"} <= {row["check"] for row in found["symptoms"]}
    assert SECRET not in json.dumps(found)
