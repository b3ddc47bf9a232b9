"""The API: publishing over HTTP, reading the plant, steering, and every way of asking wrongly."""

import gzip
import json
import time

import orjson
import pytest
from django.test import Client as Browser
from hypothesis import given
from hypothesis import strategies as st

from console.api.ingestion import events as publisher
from console.display.downsampling import downsample
from queues import keys
from queues.models import Container, Node, Queue
from queues.segments.segment import Segment
from tests.servers import Server
from workers.models import LedgerEntry, Override

pytestmark = pytest.mark.django_db
LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
Nodes = dict[str, Server]


@pytest.fixture
def publishing(plant_topology):
    """The process's client, closed afterwards: the next test has other servers."""
    yield
    publisher.get_publisher_client().close()
    publisher._get_client.cache_clear()


@pytest.fixture
def producer(secrets, publishing):
    """Post a body to a queue with a producer's token."""

    def post(body, queue="alert", content_type=LINES, query="", **headers):
        token = {"HTTP_AUTHORIZATION": f"Bearer {secrets['producer']}"}
        address = f"/api/v1/queues/{queue}/events{query}"
        return Browser().post(address, body, content_type=content_type, **token, **headers)

    return post


def stored_events(nodes, queue="alert"):
    return sum(Segment(server.client(), queue).get_counters()["inserted_events"] for server in nodes.values())


def stored_rows(nodes, queue="alert"):
    rows = []
    for server in nodes.values():
        for claimed in Segment(server.client(), queue).claim("a test", 10_000, 60):
            rows += claimed.block().batch.to_pylist()
    return rows


def lines(*events):
    return b"".join(orjson.dumps(event) + b"\n" for event in events)


def test_json_lines_are_stored_and_counted(producer, nodes):
    answer = producer(lines({"type": "a", "key": "1", "value": 1.5}, {"type": "b", "id": "own"}))
    assert answer.status_code == 202
    assert answer.json() | {"by_container": None} == {
        "published": 2,
        "blocks": 1,
        "by_container": None,
        "rerouted": 0,
        "durability": "memory",
        "rejected": 0,
        "errors": [],
    }
    assert sum(answer.json()["by_container"].values()) == 2
    assert sorted(row["type"] for row in stored_rows(nodes)) == ["a", "b"]


def test_a_gzipped_body_is_unpacked(producer, nodes):
    body = gzip.compress(lines(*({"type": "a"} for _ in range(1000))))
    assert producer(body, HTTP_CONTENT_ENCODING="gzip").json()["published"] == 1000
    assert stored_events(nodes) == 1000


def test_a_malformed_line_is_named_and_skipped(producer, nodes, control):
    body = lines({"type": "a"}) + b"not json\n" + lines({"type": "b", "value": "much"}, {"type": "c"})
    answer = producer(body)
    assert (answer.status_code, answer.json()["published"], answer.json()["rejected"]) == (202, 2, 2)
    assert [error["line"] for error in answer.json()["errors"]] == [2, 3]
    assert "value" in answer.json()["errors"][1]["error"]
    assert stored_events(nodes) == 2


def test_strict_refuses_the_whole_body_for_one_line(producer, nodes):
    answer = producer(lines({"type": "a"}) + b"not json\n", query="?strict=1")
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == ["line 2"]
    assert stored_events(nodes) == 0


@pytest.mark.parametrize("said", ["", "application/x-www-form-urlencoded", "text/plain", "application/json"])
def test_lines_are_taken_whatever_a_plain_client_calls_them(producer, nodes, said):
    assert producer(lines({"type": "a"}, {"type": "b"}), content_type=said).status_code == 202
    assert stored_events(nodes) == 2


BAD_BODIES = {
    "nothing": (b"\n", {}, 400, "empty"),
    "no line is an event": (b"1\n[]\nx\n", {}, 400, "object"),
    "not utf-8": (b"\xff\xfe\n", {}, 400, "JSON"),
    "gzip that is none": (b"plain", {"HTTP_CONTENT_ENCODING": "gzip"}, 400, "gzip"),
    "gzip that breaks off": (gzip.compress(b"{}" * 999)[:-9], {"HTTP_CONTENT_ENCODING": "gzip"}, 400, "gzip"),
    "compressed": (gzip.compress(gzip.compress(b"{}")), {"HTTP_CONTENT_ENCODING": "gzip"}, 400, "twice"),
    "an encoding we don't know": (b"{}", {"HTTP_CONTENT_ENCODING": "br"}, 415, "gzip"),
    "a type we don't know": (b"{}", {"content_type": "application/xml"}, 415, "x-ndjson"),
    "arrow that is none": (b"arrows", {"content_type": ARROW}, 400, "Arrow"),
    "a queue we don't know": (b"{}", {"queue": "orders"}, 404, "alert, process, telemetry"),
}


@pytest.mark.parametrize("case", BAD_BODIES)
def test_a_bad_body_is_refused_with_a_reason_and_stores_nothing(case, producer, nodes):
    body, how, status, says = BAD_BODIES[case]
    answer = producer(body, **how)
    assert answer.status_code == status
    assert says in json.dumps(answer.json()["errors"])
    assert stored_events(nodes) == 0


def test_a_body_that_unpacks_to_too_much_is_refused_before_anything_is_stored(producer, nodes, settings):
    settings.WEIR_MAX_BODY_BYTES = 1000
    body = gzip.compress(lines(*({"type": "a"} for _ in range(5000))))
    assert len(body) < 1000
    assert producer(body, HTTP_CONTENT_ENCODING="gzip").status_code == 413
    assert stored_events(nodes) == 0


def test_a_throttled_queue_says_when_to_come_again(producer, nodes, control):
    control.set("weir:throttle:alert", "0.5", ex=7)
    answer = producer(lines({"type": "a"}))
    assert (answer.status_code, answer["Retry-After"]) == (429, "7")
    assert stored_events(nodes) == 0
    assert producer(lines({"type": "a"}), queue="process").status_code == 202


def test_without_any_node_the_sender_is_asked_to_come_again(producer, nodes):
    for server in nodes.values():
        server.kill()
    answer = producer(lines({"type": "a"}))
    assert answer.status_code == 503
    assert int(answer["Retry-After"]) > 0
    assert "alert" in answer.json()["errors"]["queue"][0]
    assert answer.json()["published"] == 0


def test_before_the_plant_is_seeded_nothing_is_taken(secrets, control):
    token = {"HTTP_AUTHORIZATION": f"Bearer {secrets['producer']}"}
    address = "/api/v1/queues/alert/events"
    answer = Browser().post(address, b"{}", content_type=LINES, **token)
    publisher.get_publisher_client().close()
    publisher._get_client.cache_clear()
    assert (answer.status_code, "Retry-After" in answer) == (503, True)


# Reading


@pytest.fixture
def plant_rows(db):
    node = Node.objects.create(name="n1", url="redis://:secret@127.0.0.1:1/0")
    queue = Queue.objects.create(name="alert", kind="jobs", handler="sql")
    Container.objects.create(queue=queue, node=node, points=1000)


def test_queues_come_with_points_and_live_figures(viewer, plant_rows, stored_snapshot):
    (queue,) = viewer.get("/api/v1/queues").json()["queues"]
    assert (queue["name"], queue["points"]) == ("alert", {"n1": 1000})
    assert queue["live"] == stored_snapshot["queues"]["alert"]
    assert viewer.get("/api/v1/queues/alert").json() == queue


def test_secrets_of_a_queue_and_a_node_stay_inside(viewer, plant_rows, control):
    Queue.objects.update(handler_options={"url": "postgresql://weir:secret@db/weir"})
    for path in ("queues", "nodes/n1"):
        assert "secret" not in viewer.get(f"/api/v1/{path}").content.decode()


def test_figures_of_an_observer_that_ended_are_not_given_as_live(viewer, plant_rows, stored_snapshot, control):
    stored_snapshot["at"] = time.time() - 60.0
    control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))
    assert viewer.get("/api/v1/queues/alert").json()["live"] is None
    assert viewer.get("/api/v1/nodes/n1").json()["live"] is None


def test_history_gives_columns_and_keeps_unknown_null(viewer, control):
    for second in (10, 20):
        control.xadd(keys.METRICS, {"totals.in_per_second": second}, id=f"{second}000-0")
    answer = viewer.get("/api/v1/history?series=totals.in_per_second&series=nodes.n9.utilisation&from=0&to=30")
    assert answer.json() == {
        "time": [10.0, 20.0],
        "series": {"totals.in_per_second": [10.0, 20.0], "nodes.n9.utilisation": [None, None]},
    }


@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=1, max_size=300), st.integers(2, 50))
def test_thinning_keeps_the_least_the_greatest_and_the_order_of_time(values, points):
    time, kept = downsample([float(place) for place in range(len(values))], {"v": values}, points)
    known = [value for value in values if value is not None]
    left = [value for value in kept["v"] if value is not None]
    assert len(time) == len(kept["v"]) <= max(points, 2)
    assert time == sorted(time)
    assert set(left) <= set(known)
    if known:
        assert (min(left), max(left)) == (min(known), max(known))


BAD_QUESTIONS = {
    "history?from=0&to=1": "series",
    "history?series=at&from=0&to=1": "series",
    "history?series=a&from=1&to=0": "to",
    "history?series=a&from=x&to=1": "from",
    "history?series=a&from=0&to=inf": "to",
    "history?series=a&from=0&to=1&points=1": "points",
    "history?series=a&from=0&to=34560001": "from",
    "ledger?verdict=good": "verdict",
    "ledger?rows=0": "rows",
    "ledger?from=yesterday": "from",
}


@pytest.mark.parametrize("question", BAD_QUESTIONS)
def test_a_bad_question_is_refused_naming_the_field(question, viewer, control):
    answer = viewer.get(f"/api/v1/{question}")
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [BAD_QUESTIONS[question]])


def test_the_ledger_is_read_page_by_page(viewer, loop):
    for _ in range(5):
        LedgerEntry.objects.create(loop=loop, mode="auto", parameters={}, reason="a test", action=None)
    acted = LedgerEntry.objects.create(
        loop=loop, mode="auto", parameters={}, reason="a test", action={"start": 1}, verdict="checking"
    )
    first = viewer.get("/api/v1/ledger?rows=4").json()
    rest = viewer.get(f"/api/v1/ledger?rows=4&before={first['next']}").json()
    assert [len(first["entries"]), len(rest["entries"]), rest["next"]] == [4, 2, None]
    only = viewer.get(f"/api/v1/ledger?acted=1&verdict=checking&loop={loop.name}").json()["entries"]
    assert [entry["id"] for entry in only] == [acted.pk]


# Steering


def post(browser, path, body):
    return browser.post(f"/api/v1/{path}", body, content_type="application/json")


GOOD = {"loop": 1, "name": "upper_limit", "value": 500, "reason": "a test", "minutes": 2}
BAD_OVERRIDES = {
    "two expiries": (GOOD | {"expires_at": "2030-01-01T00:00:00Z"}, "expires_at"),
    "an expiry without a zone": (
        {key: GOOD[key] for key in GOOD if key != "minutes"} | {"expires_at": "2030-01-01T00:00:00"},
        "expires_at",
    ),
    "text for a number": (GOOD | {"value": "many"}, "value"),
    "an unknown key": (GOOD | {"forever": True}, "forever"),
    "a loop and a node": (GOOD | {"node": "n1"}, "scope"),
    "neither": ({key: GOOD[key] for key in GOOD if key != "loop"}, "scope"),
    "a node's unknown threshold": (
        {"node": "n1", "name": "idle", "value": 0.1, "reason": "a test", "minutes": 1},
        "name",
    ),
}


@pytest.mark.parametrize("case", BAD_OVERRIDES)
def test_a_bad_override_names_the_field_and_changes_nothing(case, operator, loop, plant_rows, control):
    body, field = BAD_OVERRIDES[case]
    body = {**body, **({"loop": loop.pk} if "loop" in body else {})}
    answer = post(operator, "overrides", body)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert not Override.objects.exists()
