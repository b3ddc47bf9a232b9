"""Plants on pages: seen, stale or unseen, set by hand for a while, registered, removed; no token is shown."""

import json
import re
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from django.utils import timezone

from console.actions import plant_control
from console.models import AuditEntry
from console.pages.plant.plant_view import list_loops
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from queues import keys
from tests.console.page_form import fetch, source_of
from tests.console.pipeline_sample import DECLARATION
from tests.workers.snapshots import snapshot_of
from workers.models import FirstReport, Loop
from workers.pipeline.declaration.declared import Declarations, DeclarationText
from workers.plants.holding import find_holder, hold, release
from workers.plants.models import PlantOrder, RegisteredPlant
from workers.plants.plant import PlantUnavailable
from workers.plants.steered import PublishedPlant

pytestmark = pytest.mark.django_db
HOSTS = "performance/hosts"
POSTED = {
    "name": "east", "kind": "weir", "url": "http://east.example/control/main/v1",
    "secret_environment": "WEIR_EAST_TOKEN", "reason": "a test",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch):
    """What was seen is not too old only because the first request takes long here."""
    monkeypatch.setattr(plant_control, "OLD_SECONDS", 600.0)


@pytest.fixture
def east(stored_snapshot, control):
    """A registered plant as the snapshot has it; `change` writes it otherwise."""
    made = {key: value for key, value in POSTED.items() if key != "reason"}
    RegisteredPlant.objects.create(**made)
    operators = {
        "in": MeasuredOperator("in", "source", 1, fixed="a source"),
        "work": MeasuredOperator("work", "operator", 2, 1, 8, tasks=({"utilisation": 0.9, "inputs": 50.0},)),
    }
    topology = MeasuredTopology("east", 5.0, 10.0, operators, (Link("in", "work", 0.2),)).to_document()

    def change(**more):
        row = {
            "kind": "weir", "state": "seen", "age_seconds": 1.0, "error": None, "tasks": None,
            "in_per_second": None, "latency_seconds": None, "steered_by": None, "topology": topology,
        }  # fmt: skip
        stored_snapshot["plants"] = {"east": {**row, **more}}
        control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))

    change()
    return change


def test_this_plant_is_shown_as_operators_tasks_and_paths(browsers, stored_snapshot):
    page = browsers["viewer"].get("/plants/main/").content.decode()
    for text in (HOSTS, f"{HOSTS}_2", "producers/telemetry", "1 to 64", "starts its workers"):
        assert text in page
    assert "Set tasks" not in page  # a viewer can't


def test_another_plant_is_shown_and_can_be_chosen_in_the_frame(browsers, east):
    answer = browsers["viewer"].get("/plants/east/")
    page = answer.content.decode()
    assert "work_1" in page and "1 to 8" in page and ">Connected<" in page
    assert answer.context["frame"].plant == "east"
    overview = browsers["viewer"].get("/").content.decode()
    assert 'href="/plants/east/"' in overview and 'href="/plants/"' in overview


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"state": "stale", "age_seconds": 9.0, "error": "east did not answer within 2 s."}, ["Stale", "9 s ago"]),
        ({"error": "east returned 200 with invalid or incomplete JSON."}, ["Error", "incomplete JSON"]),
        ({"state": "unseen", "age_seconds": None, "topology": None, "error": "east: no"}, ["No report yet"]),
    ],
)
def test_a_plant_that_answers_slowly_wrongly_or_half_says_so(browsers, east, changed, words):
    east(**changed)
    page = source_of(browsers["operator"].get("/plants/east/"))
    for word in words:
        assert word in page
    if changed.get("topology", 1):
        assert "disabled> Set tasks" in page


def test_a_plant_of_a_retired_kind_gets_no_advice_about_its_connection(browsers, east):
    RegisteredPlant.objects.update(kind="prometheus")
    error = "kind: prometheus is no longer supported. Attach a declared plant with PromQL sensors."
    east(kind="prometheus", state="stale", error=error)
    page = source_of(browsers["operator"].get("/plants/east/"))
    assert error in page and "Check the plant" not in page
    east(state="stale", error="connection refused")
    assert "Check the plant" in source_of(browsers["operator"].get("/plants/east/"))


def test_tasks_are_set_by_hand_for_a_while_in_which_loops_hold(browsers, stored_snapshot, control):
    posted = {"operator": HOSTS, "tasks": "4", "minutes": "5", "reason": "a burst"}
    assert fetch(browsers["operator"], "/plants/main/tasks", posted).json()["ok"]
    assert json.loads(control.get(keys.PIPELINE_CONTROLS.build("performance")))["tasks"] == {"hosts": 4}
    held = find_holder(control, "main")
    assert held.holder == "operator" and held.until - timezone.now().timestamp() > 290
    noted = AuditEntry.objects.get()
    assert (noted.action, noted.reason, noted.after) == ("plant.scale", "a burst", {HOSTS: 4})
    assert fetch(browsers["operator"], "/plants/main/release", {}).json()["ok"]
    assert find_holder(control, "main") is None


def test_nothing_is_set_by_hand_on_what_was_seen_long_ago(browsers, stored_snapshot, control):
    stored_snapshot["at"] -= 700
    control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))
    posted = {"operator": HOSTS, "tasks": "4", "minutes": "5", "reason": "a burst"}
    answer = fetch(browsers["operator"], "/plants/main/tasks", posted)
    assert answer.status_code == 422 and "s ago" in answer.json()["errors"]["plant"][0]
    assert not control.exists(keys.PIPELINE_CONTROLS.build("performance"))
    assert find_holder(control, "main") is None


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"tasks": "65"}, f"tasks.{HOSTS}"),
        ({"operator": "nobody"}, "tasks.nobody"),
        ({"minutes": "61"}, "minutes"),
        ({"reason": ""}, "reason"),
    ],
)
def test_what_cannot_be_set_by_hand_is_refused_and_nothing_is_held(browsers, stored_snapshot, control, changed, field):
    posted = {"operator": HOSTS, "tasks": "4", "minutes": "5", "reason": "a burst", **changed}
    answer = fetch(browsers["operator"], "/plants/main/tasks", posted)
    assert answer.status_code == 422 and list(answer.json()["errors"]) == [field]
    assert find_holder(control, "main") is None and not AuditEntry.objects.exists()


@pytest.mark.parametrize("before", [False, True])
def test_a_plant_whose_own_controllers_go_on_is_held_no_longer_than_it_was(
    browsers, stored_snapshot, control, monkeypatch, before
):
    def hold_back(plant, seconds):
        raise PlantUnavailable("main did not answer within 2 s.")

    monkeypatch.setattr(PublishedPlant, "hold", hold_back)
    if before:
        hold(control, "main", "operator", timezone.now().timestamp(), 60.0)
    posted = {"operator": HOSTS, "tasks": "4", "minutes": "5", "reason": "a burst"}
    answer = fetch(browsers["operator"], "/plants/main/tasks", posted)
    assert answer.status_code == 422 and "did not answer" in answer.json()["errors"]["plant"][0]
    assert (find_holder(control, "main") is not None) == before
    assert not AuditEntry.objects.exists()


def test_who_else_steers_is_said_where_somebody_tries(browsers, stored_snapshot, control):
    hold(control, "main", "token:weir-2", timezone.now().timestamp(), 60.0)
    posted = {"operator": HOSTS, "tasks": "4", "minutes": "5", "reason": "a burst"}
    answer = fetch(browsers["operator"], "/plants/main/tasks", posted)
    assert "token:weir-2" in answer.json()["errors"]["plant"][0]
    assert fetch(browsers["operator"], "/plants/main/release", {}).status_code == 422


def test_tasks_set_beside_the_map_hold_the_loops_too_and_give_way_to_who_steers(browsers, stored_snapshot, control):
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
    address, posted = ("/pipeline/performance/operators/hosts/tasks", {"tasks": "3", "minutes": "5", "reason": "x"})
    hold(control, "main", "token:weir-2", timezone.now().timestamp(), 60.0)
    refused = fetch(browsers["operator"], address, posted)
    assert "token:weir-2" in refused.json()["errors"]["tasks"][0] and not control.exists(
        keys.PIPELINE_CONTROLS.build("performance")
    )
    release(control, "main", "token:weir-2")
    assert fetch(browsers["operator"], address, {**posted, "tasks": "99"}).status_code == 422
    assert find_holder(control, "main") is None
    assert fetch(browsers["operator"], address, posted).json()["ok"]
    assert json.loads(control.get(keys.PIPELINE_CONTROLS.build("performance")))["tasks"] == {"hosts": 3}
    assert find_holder(control, "main").holder == "operator"


def test_a_plant_is_registered_changed_and_removed_and_all_of_it_is_audited(browsers, stored_snapshot, monkeypatch):
    monkeypatch.setenv("WEIR_EAST_TOKEN", "weir_very-secret")
    administrator = browsers["administrator"]
    assert fetch(administrator, "/plants/register", POSTED).json()["ok"]
    flink = {**POSTED, "kind": "flink", "url": "http://flink:8081", "flink.job": "hashes"}
    taken = fetch(administrator, "/plants/register", flink)
    assert taken.status_code == 422 and "already registered" in taken.json()["errors"]["name"][0]
    assert fetch(administrator, "/plants/register", {**flink, "changes": "east"}).json()["ok"]
    row = RegisteredPlant.objects.get()
    assert (row.kind, row.options) == ("flink", {"job": "hashes"})
    page = administrator.get("/plants/?edit=east").content.decode()
    assert "WEIR_EAST_TOKEN" in page and "very-secret" not in page
    assert fetch(administrator, "/plants/east/remove", {"reason": "gone"}).json()["ok"]
    assert not RegisteredPlant.objects.exists()
    actions = list(AuditEntry.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["plant.register", "plant.register", "plant.remove"]
    assert "very-secret" not in str(list(AuditEntry.objects.values()))


def test_who_changes_how_a_plant_is_reached_after_another_did_is_refused(browsers, stored_snapshot):
    """As on its page, and through the API."""
    administrator = browsers["administrator"]
    assert fetch(administrator, "/plants/register", POSTED).json()["ok"]
    seen = re.search(r'name="digest" value="(\w+)"', administrator.get("/plants/?edit=east").content.decode())[1]
    (row,) = administrator.get("/api/v1/plants").json()["plants"]
    assert row["digest"] == seen
    change = {**POSTED, "changes": "east", "digest": seen}
    assert fetch(administrator, "/plants/register", {**change, "url": "http://west.example/control/main/v1"}).json()[
        "ok"
    ]
    answer = fetch(administrator, "/plants/register", {**change, "url": "http://north.example/control/main/v1"})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["digest"])
    plain = administrator.post("/plants/register", {**change, "url": "http://south.example/control/main/v1"})
    assert "east was changed in the meantime. Reload the page" in (said := plain.content.decode())
    assert "Digest:" not in said
    assert RegisteredPlant.objects.get().url == "http://west.example/control/main/v1"


@pytest.mark.parametrize(
    ("changed", "field"), [({"name": "main"}, "name"), ({"url": "ftp://x"}, "url"), ({"reason": ""}, "reason")]
)
def test_a_registration_that_cannot_be_is_refused_at_its_field(browsers, stored_snapshot, changed, field):
    answer = fetch(browsers["administrator"], "/plants/register", {**POSTED, **changed})
    assert answer.status_code == 422 and field in answer.json()["errors"]
    assert not RegisteredPlant.objects.exists()


def test_an_order_that_took_no_effect_stands_on_the_page_and_a_person_lets_the_loops_go_on(browsers, east):
    row = RegisteredPlant.objects.get()
    now = timezone.now()
    PlantOrder.objects.create(plant=row, operator="work", tasks=4, at=now, by="loop x", by_loop=True)
    order = {"tasks": 4, "at": now.timestamp(), "by": "loop x", "now": 2, "since": now.timestamp()}
    east(orders={"work": {**order, "state": "missed", "waiting_since": now.timestamp()}})
    page = browsers["viewer"].get("/plants/east/").content.decode()
    assert "loop x requested 4 tasks for work, which still has 2: no effect so far" in page
    assert "plants/east/resume" not in page
    operator = browsers["operator"]
    assert "plants/east/resume" in operator.get("/plants/east/").content.decode()
    assert fetch(operator, "/plants/east/resume", {"reason": ""}).status_code == 422
    assert fetch(operator, "/plants/east/resume", {"reason": "the autoscaler is off now"}).json()["ok"]
    assert not PlantOrder.objects.exists()
    assert AuditEntry.objects.get().action == "plant.resume"


def part_of(page, name):
    """A part that is written again while the page is open; None where there is none of its name."""
    found = re.search(rf'<(\w+)[^>]*id="{name}"[^>]*data-refresh="every:4".*?</\1>', page, re.DOTALL)
    return found and found[0]


@pytest.mark.parametrize("rows", [[], [["queue mail", 3]]])
def test_sections_and_orders_come_and_go_while_the_page_is_open(browsers, east, rows):
    at = timezone.now().timestamp()
    order = {"tasks": 4, "at": at, "by": "loop x", "now": 4, "since": at, "state": "reached"}
    section = {"title": "Not observed", "columns": ["Queue", "Ready"], "rows": rows, "empty": "All is seen."}
    east(sections=[section], orders={"work": order} if rows else {})
    page = browsers["viewer"].get("/plants/east/").content.decode()
    assert ("queue mail" if rows else "All is seen.") in part_of(page, "plant-section-1")
    assert ("loop x" in part_of(page, "plant-orders")) == bool(rows)


def test_the_api_registers_lists_sets_and_removes_like_the_pages(browsers, east, control):
    administrator = browsers["administrator"]

    def post(address, body):
        return administrator.post(f"/api/v1/plants{address}", body, content_type="application/json")

    listed = administrator.get("/api/v1/plants").json()["plants"]
    assert [(each["name"], each["seen"]["state"]) for each in listed] == [("east", "seen")]
    west = {**POSTED, "name": "west", "kind": "flink", "options": {"job": "hashes"}}
    assert post("", west).json()["options"] == {"job": "hashes"}
    other = {**west, "options": {"job": "sums"}}
    assert post("", other).status_code == 422
    assert post("", {**other, "changes": True}).json()["options"] == {"job": "sums"}
    assert post("/west/remove", {"reason": "gone"}).json() == {"removed": "west", "left": ""}
    by_hand = {"operator": HOSTS, "tasks": 3, "minutes": 5, "reason": "a burst"}
    assert post("/main/tasks", by_hand).json()["tasks"] == 3
    assert json.loads(control.get(keys.PIPELINE_CONTROLS.build("performance")))["tasks"] == {"hosts": 3}
    other = browsers["operator"].post("/api/v1/plants/main/tasks", by_hand, content_type="application/json")
    assert other.status_code == 409 and other.json()["holder"] == "administrator"
    east(state="stale", age_seconds=9.0, error="east did not answer within 2 s.")
    assert post("/east/tasks", {**by_hand, "operator": "work"}).status_code == 503


def test_the_control_api_is_served_for_each_plant(browsers, east):
    assert browsers["viewer"].get("/control/east/v1/getoperatorparallelism?operator=work").json() == 2
    east(state="stale", age_seconds=9.0, error="east did not answer within 2 s.")
    answer = browsers["viewer"].get("/control/east/v1/gettopology")
    assert answer.status_code == 503 and "did not answer" in answer.json()["errors"]["plant"][0]


def test_the_page_of_a_plant_lists_the_loops_of_its_pools_after_those_of_all_of_it():
    of_one, of_all = {"plant": "east", "operator": "celery@one"}, {"plant": "east"}
    loops = {
        "concurrency/plant:east/celery@one": {"id": 1, "law": "concurrency", "mode": "advise", "target": of_one},
        "parallelism_joint/plant:east": {"id": 2, "law": "parallelism_joint", "mode": "advise", "target": of_all},
        "concurrency/jobs@here": {"id": 3, "law": "concurrency", "target": {"host": "jobs@here"}},
        "concurrency/plant:west/w": {"id": 4, "law": "concurrency", "target": {"plant": "west", "operator": "w"}},
    }
    assert [row.status.id for row in list_loops(snapshot_of({"loops": loops}), "east")] == [2, 1]
    loops["concurrency/plant:east/celery@one"]["mode"] = "auto"
    assert [row.status.id for row in list_loops(snapshot_of({"loops": loops}), "east")] == [1, 2]


def test_the_forecast_of_another_plant_stands_on_its_loop_s_page_and_whether_the_loop_plans_by_it(
    browsers, east, stored_snapshot
):
    foreseen = {"mean_per_second": [50.0, 60.0], "deviation_per_second": [3.0, 4.0], "days": 2.0}
    stored_snapshot["forecasts"] = {"plant:east": {"at": stored_snapshot["at"], "window_seconds": 60.0, **foreseen}}
    loop = Loop.objects.create(
        name="parallelism_joint/plant:east", law="parallelism_joint", target={"plant": "east"}, mode="advise"
    )
    for kind, only_shown in (("flink", False), ("celery", True)):
        east(kind=kind)
        page = source_of(browsers["viewer"].get(f"/loops/{loop.pk}/"))
        assert "events/s at the plant" in page and 'class="spread"' in page, kind
        assert ("For information only:" in page) == only_shown, kind


def test_consumer_groups_are_shown_with_their_lag_furthest_behind_first(browsers, east):
    def row(number, **more):
        return {"topic": "orders", "partition": number, "member": "", "said": "", **more}

    late = {
        "state": "stable", "members": [{"client": "worker-1", "host": "/10.0.0.7", "partitions": 2}],
        "topics": ["orders"], "lag_events": 4_200, "lag_seconds": 93.4, "trend": "rising", "partition_count": 2,
        "partitions": [
            row(0, committed=10, end=4_210, lag_events=4_200, lag_seconds=93.4, member="worker-1"),
            row(1, committed=7, end=None, said="the topic is gone"),
        ],
    }  # fmt: skip
    early = {"state": "empty", "lag_events": 3, "lag_seconds": 5.0, "at_least": True, "topics": ["orders"]}
    east(groups={"early": early, "late": late})
    page = source_of(browsers["viewer"].get("/plants/east/"))
    groups = page[page.index('id="plant-groups"') :]
    assert groups.index("late") < groups.index("early")
    assert "93.4" in groups and "4,200" in groups and "rising" in groups
    assert "≥ 5" in groups
    assert "the topic is gone" in page
    assert "10.0.0.7" in page
    assert "plants.east.groups.late.lag_seconds" in page


SENSORS = {
    "requests": {"value": 41.5, "silent_seconds": 0.0, "unit": "1/s", "title": "Requests", "error": None},
    "waiting": {
        "value": None, "silent_seconds": 75.0, "unit": "jobs", "title": "",
        "error": "Sensor waiting: shop (prometheus:9090) did not answer within 2 s.",
    },
}  # fmt: skip


def test_the_sensors_of_a_declared_plant_are_shown_and_charted_and_why_one_has_no_number(browsers, east):
    east(kind="declared", sensors=SENSORS)
    page = browsers["viewer"].get("/plants/east/").content.decode()
    for text in ("Sensors", "41.5", "1/s", "No value for", "did not answer within 2 s"):
        assert text in page, text
    assert 'data-series="plants.east.sensors.requests.value"' in page
    east(kind="declared", sensors=SENSORS, state="unseen", topology=None, error="Sensor waiting: away")
    assert "41.5" in browsers["viewer"].get("/plants/east/").content.decode()


def test_a_declaration_is_begun_from_an_example_and_the_line_of_what_is_wrong_is_marked(browsers):
    administrator = browsers["administrator"]
    page = administrator.get("/plants/attach?kind=declared&example=rabbitmq").content.decode()
    assert "name: orders" in page and "data-editor" in page and "data-wrong-line" not in page
    posted = {"kind": "declared", "declared.declaration": "name: shop\nsensors:\n  it: {unit: s}\n"}
    refused = administrator.post("/plants/attach", posted)
    assert refused.status_code == 422
    page = refused.content.decode()
    assert 'data-wrong-line="3"' in page and "must have exactly one of promql, sql, redis, url, file" in page


def test_the_first_report_of_a_loop_stands_on_its_page_its_plant_s_page_and_in_the_api(browsers, east, stored_snapshot):
    loop = Loop.objects.create(
        name="parallelism_joint/plant:east", law="parallelism_joint", target={"plant": "east"}, mode="advise"
    )
    status = {"id": loop.pk, "law": loop.law, "target": loop.target, "mode": "advise"}
    stored_snapshot["loops"] = {**stored_snapshot["loops"], loop.name: status}
    east()
    viewer = browsers["viewer"]
    assert viewer.get(f"/api/v1/loops/{loop.pk}").json()["first_report"] is None
    assert "First report" not in viewer.get(f"/loops/{loop.pk}/").content.decode()
    since = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
    figures = {
        "measured_seconds": 3480.0, "task_hours": 8.0, "advised_task_hours": 5.2, "events": 7200.0,
        "waiting_event_seconds": 24_480.0, "advised_waiting_event_seconds": 4_320.0, "changes": 4,
    }  # fmt: skip
    FirstReport.objects.create(loop=loop, since=since, until=since + timedelta(hours=1), figures=figures)
    report = viewer.get(f"/api/v1/loops/{loop.pk}").json()["first_report"]
    assert report["figures"] == {**figures, "pause_seconds": 0.0}
    assert report["sentences"] == [
        "Worker-hours: 8.00 used, 5.20 with the advice: 2.80 less (35 %).",
        "Mean waiting time: 3.40 s measured, 0.60 s estimated with the advice: 2.80 s less.",
    ]
    for address in (f"/loops/{loop.pk}/", "/plants/east/"):
        page = viewer.get(address).content.decode()
        assert "Worker-hours: 8.00 used, 5.20 with the advice" in page, address
