"""For machines that watch: alive, ready, and in numbers."""

from datetime import timedelta

import orjson
import pytest
from django.db import DatabaseError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.pages.health import health
from console.pages.health.exposition import render_exposition
from console.pages.health.health import record_figures
from console.pages.health.readiness import check_parts
from console.web.admission import REFUSED
from queues import keys
from tests.workers.snapshots import snapshot_of
from workers.alerts.lifecycle.models import AlertWatch, Message, Receiver
from workers.alerts.rules.rules import ensure_rules
from workers.batch import task_definitions
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db
ELSEWHERE = {"REMOTE_ADDR": "192.0.2.7"}
HERE = {"HTTP_HOST": "localhost:8000"}  # from 127.0.0.1


def ready():
    return Client().get("/readyz").json()


def store(control, snapshot):
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))


def test_alive_asks_nothing_else(settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert Client().get("/healthz").content == b"ok\n"


def test_ready_when_every_part_is_there(stored_snapshot):
    Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", ticked_at=timezone.now())
    answer = Client().get("/readyz")
    document = answer.json()
    assert (answer.status_code, document["ready"]) == (200, True)
    assert set(document["parts"]) == {
        "database",
        "control",
        "observer",
        "nodes",
        "workers.control",
        "workers.jobs",
        "beat",
        "pipeline",
    }
    assert all(part["age_seconds"] is not None for part in document["parts"].values())


BREAKS = {
    "nodes": lambda snapshot: snapshot["nodes"]["n1"].update(state="OFFLINE"),
    "workers.jobs": lambda snapshot: snapshot["hosts"].pop("jobs@here"),
    "workers.control": lambda snapshot: snapshot["hosts"]["control@here"].update(age_seconds=99.0),
    "observer": lambda snapshot: snapshot.update(at=snapshot["at"] - 60),
    "pipeline": lambda snapshot: snapshot["pipeline"].update(state="failed", error="no checkpoint"),
}


@pytest.mark.parametrize("part", BREAKS)
def test_a_missing_part_is_named_and_the_rest_is_not_blamed(part, control, stored_snapshot, browsers):
    BREAKS[part](stored_snapshot)
    store(control, stored_snapshot)
    answer = browsers["viewer"].get("/readyz")
    assert answer.status_code == 503
    broken = [name for name, found in answer.json()["parts"].items() if not found["ok"]]
    assert broken == [part]
    assert answer.json()["parts"][part]["message"]


def test_before_the_first_snapshot_nothing_is_ready_but_the_servers(control):
    document = ready()
    assert document["parts"]["database"]["ok"] and document["parts"]["control"]["ok"]
    assert not document["parts"]["observer"]["ok"]
    assert not document["ready"]


def test_a_control_server_that_is_away_is_named(settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert not ready()["parts"]["control"]["ok"]


def test_a_clock_that_stopped_is_seen_by_its_ticks(stored_snapshot):
    now = timezone.now()
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", interval_seconds=5)
    assert not check_parts(now)["beat"].ok
    Loop.objects.filter(pk=loop.pk).update(ticked_at=now - timedelta(seconds=29))
    assert check_parts(now)["beat"].ok
    assert not check_parts(now + timedelta(seconds=2))["beat"].ok


def test_a_tick_from_before_the_clock_was_set_back_is_no_sign_of_life(stored_snapshot):
    now = timezone.now()
    Loop.objects.create(name="flow", law="flow", interval_seconds=5, ticked_at=now + timedelta(hours=1))
    assert not check_parts(now)["beat"].ok


def test_a_retired_loop_is_no_measure_of_the_clock(stored_snapshot):
    now = timezone.now()
    Loop.objects.create(name="a", law="flow", interval_seconds=60, ticked_at=now - timedelta(seconds=90))
    Loop.objects.create(name="b", law="ladder", interval_seconds=2, target={"retired_at": 1.0})
    assert check_parts(now)["beat"].ok


def test_an_alerter_that_died_is_named_where_there_are_rules(stored_snapshot):
    now = timezone.now()
    assert "alerter" not in check_parts(now)
    ensure_rules(now)
    assert not check_parts(now)["alerter"].ok
    AlertWatch.objects.create(looked_at=now)
    assert check_parts(now + timedelta(seconds=29))["alerter"].ok
    assert not check_parts(now + timedelta(seconds=31))["alerter"].ok


def test_workers_that_only_scheduled_tasks_need_are_named_where_one_is_scheduled(control, stored_snapshot):
    now = timezone.now()
    task = task_definitions.define("nightly", "retention", requirements=["spark"], every_seconds=60)
    assert not check_parts(now)["workers.spark"].ok
    stored_snapshot["hosts"]["spark@here"] = {**stored_snapshot["hosts"]["jobs@here"], "role": "spark"}
    store(control, stored_snapshot)
    assert check_parts(now)["workers.spark"].ok
    task_definitions.schedule(task)
    assert "workers.spark" not in check_parts(now)


def test_a_plant_without_pipeline_queues_needs_no_pipeline(control, stored_snapshot):
    del stored_snapshot["queues"]["telemetry"]
    store(control, stored_snapshot)
    assert "pipeline" not in ready()["parts"]


def test_metrics_carry_the_snapshots_numbers(stored_snapshot):
    text = Client(**HERE).get("/metrics").content.decode().splitlines()
    assert "weir_snapshot_present 1.0" in text
    assert 'weir_queue_waiting_events{queue="alert"} 12.0' in text
    assert 'weir_node_state{node="n1",state="NORMAL"} 1.0' in text
    assert 'weir_node_state{node="n1",state="BUSY"} 0.0' in text
    assert 'weir_container_inserted_events_total{node="n1",queue="alert"} 1012.0' in text


def test_what_is_unknown_is_left_out_of_the_metrics(snapshot):
    text = render_exposition(snapshot_of(snapshot)).decode()
    assert "weir_queue_waiting_events{" in text
    assert "weir_queue_latency_p95_seconds{" not in text
    assert "\nweir_plant_latency_p95_seconds " not in text


def metrics():
    """{sample: value} of what the address says."""
    lines = Client(**HERE).get("/metrics").content.decode().splitlines()
    return {name: float(value) for name, value in (row.rsplit(" ", 1) for row in lines if row[0] != "#")}


def test_metrics_count_decisions_and_actions_that_are_open_or_failed():
    now = timezone.now()
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", ticked_at=now, decided_at=now)
    other = Loop.objects.create(name="worker_rate/alert/n2", law="worker_rate", ticked_at=now, decided_at=now)

    def decided(minutes, of=loop, **entry):
        entry = {"mode": "auto", "parameters": {}, "reason": "a test", "action": {"start": 1}, **entry}
        LedgerEntry.objects.create(loop=of, at=now - timedelta(minutes=minutes), **entry)

    decided(16, error="The plant refused.")
    decided(14, error="The plant refused.")
    decided(3)  # its tick died; the next one has seen to it
    decided(2, action=None)
    decided(1, applied=True)
    decided(0)
    decided(0, of=other, mode="advise")
    retired = Loop.objects.create(name="worker_rate/gone/n1", law="worker_rate", target={"retired_at": 1.0})
    decided(0, of=retired)
    figures = metrics()
    assert figures["weir_ledger_decisions_total"] == LedgerEntry.objects.latest("pk").pk
    assert (figures["weir_ledger_open_actions"], figures["weir_ledger_failed_actions"]) == (1.0, 1.0)


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="it reads SQLite's plans")
def test_metrics_never_read_the_whole_ledger():
    now = timezone.now()
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", ticked_at=now, decided_at=now)
    LedgerEntry.objects.create(loop=loop, at=now, mode="auto", parameters={}, reason="a test")
    with CaptureQueriesContext(connection) as asked:
        record_figures(now)
    assert len(asked.captured_queries) > 4
    with connection.cursor() as cursor:
        for query in asked.captured_queries:
            cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}")
            steps = [step for *_, step in cursor.fetchall()]
            assert not [step for step in steps if step.startswith("SCAN workers_ledger")], query["sql"]


def test_metrics_count_messages_that_wait_or_were_given_up():
    now, receiver = timezone.now(), Receiver.objects.create(name="desk", channel="browser")

    def message(state, minutes, error=""):
        at, key = now - timedelta(minutes=minutes), f"{state} {minutes}"
        Message.objects.create(key=key, receiver=receiver, content={}, state=state, created_at=at, error=error)

    assert metrics()["weir_message_wait_seconds"] == 0.0
    message("waiting", 5)
    message("waiting", 1)
    message("sent", 9)
    message("failed", 10, "refused")
    message("failed", 11, Message.SWITCHED_OFF)
    message("failed", 25 * 60, "refused")
    figures = metrics()
    assert (figures["weir_messages_waiting"], figures["weir_messages_failed"]) == (2.0, 1.0)
    assert 300.0 <= figures["weir_message_wait_seconds"] < 400.0


def test_metrics_count_the_requests_that_overload_refused(rf):
    request = rf.get("/metrics", **HERE)
    request.scope = {REFUSED: {"people": 3, "events": 0}}
    text = health.metrics(request).content.decode()
    assert 'weir_console_refused_requests_total{line="people"} 3.0' in text
    assert 'weir_console_refused_requests_total{line="events"} 0.0' in text


def test_metrics_leave_the_ledger_out_while_the_database_is_away(stored_snapshot, monkeypatch):
    def away(_now):
        raise DatabaseError

    monkeypatch.setattr(health, "record_figures", away)
    figures = metrics()
    assert figures["weir_snapshot_present"] == 1.0
    assert not [name for name in figures if name.startswith(("weir_ledger", "weir_message"))]


def test_metrics_from_elsewhere_take_a_token_or_a_login(browsers, secrets, stored_snapshot):
    assert Client().get("/metrics", **ELSEWHERE).status_code == 401
    assert browsers["viewer"].get("/metrics", **ELSEWHERE).status_code == 200
    for role, status in {"viewer": 200, "producer": 401}.items():
        token = {"HTTP_AUTHORIZATION": f"Bearer {secrets[role]}"}
        assert Client().get("/metrics", **ELSEWHERE, **token).status_code == status


@pytest.mark.parametrize(
    "proxied",
    [
        {"HTTP_X_FORWARDED_FOR": "192.0.2.7"},
        {"HTTP_X_FORWARDED_PROTO": "https"},
        {"HTTP_X_FORWARDED_HOST": "console.example.org"},
        {"HTTP_X_REAL_IP": "192.0.2.7"},
        {"HTTP_FORWARDED": "for=192.0.2.7"},
        {"HTTP_VIA": "1.1 proxy"},
        {"HTTP_HOST": "testserver"},  # a proxy that adds no header leaves the name that was asked for
        {"HTTP_HOST": ""},
    ],
)
def test_a_proxy_on_this_host_does_not_open_metrics_to_others(proxied, stored_snapshot):
    assert Client(**{**HERE, **proxied}).get("/metrics").status_code in (400, 401)


@pytest.mark.parametrize(
    ("address", "host"), [("127.0.0.1", "127.0.0.1:8000"), ("::1", "[::1]:8000"), ("::ffff:127.0.0.1", "localhost")]
)
def test_a_scraper_on_this_host_needs_no_token(address, host, stored_snapshot):
    assert Client(REMOTE_ADDR=address, HTTP_HOST=host).get("/metrics").status_code == 200
