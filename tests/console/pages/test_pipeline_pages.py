"""The pipeline's pages: an operator beside the map, declarations with their versions, steering."""

import json
import time

import pytest
from django.urls import reverse

from console.api.routes import pipelines
from console.models import AuditEntry, QueueLimit
from queues import keys
from queues.models import Queue
from tests.console.page_form import form_of, source_of
from tests.console.pipeline_sample import DECLARATION
from workers.models import PipelineVersion
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.declaration.declared import Declarations, DeclarationText
from workers.tasks import reconcile_versions

pytestmark = pytest.mark.django_db


@pytest.fixture
def at_work(control, stored_snapshot):
    """The application of the sample, as shipped, and the queues it names."""
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
    for name, kind in (("telemetry", "pipeline"), ("alert", "jobs")):
        Queue.objects.create(name=name, kind=kind)


@pytest.fixture
def client_of(browsers):
    return browsers.__getitem__


def test_an_operator_shows_its_patterns_and_what_it_feeds(client_of, at_work):
    page = client_of("viewer").get(reverse("pipeline-operator", args=["performance", "hosts"]))
    text = source_of(page)
    assert "busy; load" in text
    assert "value &gt; 85" in text
    assert "Feeds sites with load-rises" in text
    assert "Set tasks" not in text


def test_the_page_says_what_runs_the_rules_and_why_it_is_spark(client_of, at_work, control):
    snapshot = json.loads(control.get(keys.SNAPSHOT))
    row = snapshot["pipeline"]["applications"]["performance"]
    said = {"arrow": "Engine: Arrow", "spark": "Spark runs the rules because rule &quot;x&quot; uses round()."}
    for engine, reason in (("arrow", None), ("spark", 'rule "x" uses round()')):
        row |= {"rule_engine": engine, "spark_reason": reason}
        control.set(keys.SNAPSHOT, json.dumps(snapshot))
        text = source_of(client_of("viewer").get(reverse("pipeline-application", args=["performance"])))
        assert [name for name, sentence in said.items() if sentence in text] == [engine]


def test_the_page_says_where_the_application_runs_and_why(client_of, at_work, control):
    snapshot = json.loads(control.get(keys.SNAPSHOT))
    row = snapshot["pipeline"]["applications"]["performance"]
    for place, reason, said in (
        ("process", "Spark starts above 2,000 events/s", "events/s. Spark starts above 2,000 events/s."),
        ("spark", "2 tasks are set for an operator", "Runs on Spark because 2 tasks are set for an operator."),
        ("spark", "", "Runs on Spark."),
    ):
        row |= {"place": place, "place_reason": reason}
        control.set(keys.SNAPSHOT, json.dumps(snapshot))
        text = source_of(client_of("viewer").get(reverse("pipeline-application", args=["performance"])))
        assert said in text
        assert ("Runs in the pipeline's process" in text) == (place == "process")


def test_a_complex_event_shows_why_its_events_fit_and_its_measures(client_of, at_work, control):
    attributes = {"conditions": ["B.value 940 > 10 × A.value 93"], "measures": {"ratio": 10.1, "none": None}}
    event = {"id": "c1", "time": "2026-01-01T00:00:00Z", "type": "jump", "source": "x", "attributes": attributes}
    control.rpush(keys.PIPELINE_RECENT.build("performance"), json.dumps(event))
    text = source_of(client_of("operator").get(reverse("pipeline-application", args=["performance"])))
    assert "B.value 940 &gt; 10 × A.value 93" in text
    assert "<dt>ratio</dt>" in text and "10.1" in text and "<dt>none</dt>" in text


def test_an_application_or_operator_that_is_not_there_is_not_found(client_of, at_work):
    client = client_of("viewer")
    for address in (
        reverse("pipeline-application", args=["other"]),
        reverse("pipeline-operator", args=["performance", "other"]),
        reverse("pipeline-declaration", args=["other"]),
    ):
        assert client.get(address).status_code == 404


def test_an_application_whose_process_begins_anew_is_not_said_to_be_missing(client_of, at_work, control):
    snapshot = json.loads(control.get(keys.SNAPSHOT))
    snapshot["pipeline"] |= {"applications": {}, "state": "starting", "error": "it ran out of memory"}
    control.set(keys.SNAPSHOT, json.dumps(snapshot))
    for name, args in (("pipeline-application", ["performance"]), ("pipeline-operator", ["performance", "hosts"])):
        text = source_of(client_of("viewer").get(reverse(name, args=args)))
        assert "The pipeline is restarting" in text and "it ran out of memory" in text
    assert client_of("viewer").get(reverse("pipeline-application", args=["other"])).status_code == 404


def test_a_pipeline_that_should_have_reported_by_now_is_not_waited_for_but_says_what_to_do(
    client_of, stored_snapshot, control
):
    snapshot = json.loads(control.get(keys.SNAPSHOT))
    snapshot["pipeline"] = {}
    for state, late in (("starting", False), ("silent", True)):
        snapshot["parts"] = {"pipeline": {"state": state, "since": 0.0}}
        control.set(keys.SNAPSHOT, json.dumps(snapshot))
        text = source_of(client_of("viewer").get(reverse("pipeline")))
        assert ("The report is overdue" in text) is late is ("operate/alerts/pipeline-down" in text)
        assert ("about 15 seconds" in text) is not late
        assert "No report yet" in " ".join(text.split())


def test_setting_tasks_steers_the_running_application_and_is_audited(client_of, at_work, control):
    address = reverse("pipeline-tasks", args=["performance", "hosts"])
    client_of("operator").post(address, {"tasks": "4", "reason": "it is busy"})
    assert json.loads(control.get(keys.PIPELINE_CONTROLS.build("performance")))["tasks"] == {"hosts": 4}
    entry = AuditEntry.objects.get(action="pipeline.steer")
    assert (entry.target, entry.after, entry.reason) == ("performance/hosts", {"hosts": 4}, "it is busy")


@pytest.mark.parametrize(("tasks", "says"), [("0", "tasks"), ("x", "number"), ("65", "1 to 64")])
def test_a_number_of_tasks_that_is_none_changes_nothing(client_of, at_work, control, tasks, says):
    address = reverse("pipeline-tasks", args=["performance", "hosts"])
    page = client_of("operator").post(address, {"tasks": tasks, "reason": "why"})
    assert page.status_code == 422
    assert says in page.content.decode()
    assert control.get(keys.PIPELINE_CONTROLS.build("performance")) is None
    assert not AuditEntry.objects.exists()


def test_who_is_limited_to_other_queues_does_not_replace_an_application_as_shipped(client_of, at_work, people):
    """No version of it was ever declared: it is what the process has of its own file."""
    Queue.objects.create(name="own", kind="pipeline")
    QueueLimit.objects.create(user=people["operator"], queues=["own", "alert"])
    mine = DECLARATION.replace("telemetry", "own")
    given = {"text": mine, "reason": "another reader"}
    answer = client_of("operator").post("/api/v1/applications", given, content_type="application/json")
    assert answer.status_code == 403 and not PipelineVersion.objects.exists()


def test_a_queue_that_another_application_reads_can_not_be_declared_for_a_second(client_of, at_work):
    second = DECLARATION.replace("name: performance", "name: second")
    given = {"text": second, "reason": "another one"}
    refused = client_of("operator").post("/api/v1/applications", given, content_type="application/json")
    assert refused.status_code == 422 and "is already read by performance" in refused.content.decode()
    assert not PipelineVersion.objects.exists()


def test_many_versions_are_given_newest_first_page_by_page(client_of, at_work, people, monkeypatch):
    monkeypatch.setattr(pipelines, "MAX_VERSIONS", 2)
    given = {"application": "old", "text": "name: old", "reason": "a test", "owner": people["operator"]}
    for number in (1, 2, 3):
        PipelineVersion.objects.create(number=number, **given)
    first = client_of("viewer").get("/api/v1/applications").json()
    assert [each["number"] for each in first["versions"]] == [3, 2] and first["next"]
    rest = client_of("viewer").get("/api/v1/applications", {"before": first["next"]}).json()
    assert [each["number"] for each in rest["versions"]] == [1] and rest["next"] is None


def declare(client, text, name="performance"):
    return client.post(reverse("pipeline-declare", args=[name]), {"text": text, "reason": "sharper"})


def test_a_declaration_becomes_a_version_and_is_wanted_from_then_on(client_of, at_work, control):
    client = client_of("operator")
    changed = DECLARATION.replace("85", "90")
    assert declare(client, changed).status_code == 302
    assert Declarations(control).load_wanted()["performance"] == DeclarationText(
        "performance", 1, changed.replace("\r\n", "\n")
    )
    assert declare(client, DECLARATION).status_code == 302
    assert list(PipelineVersion.objects.order_by("number").values_list("number", "active")) == [(1, False), (2, True)]
    old = client.get(reverse("pipeline-declaration", args=["performance"]) + "?version=1").content.decode()
    assert "value &gt; 90" in old


def test_a_text_that_was_begun_before_another_version_is_not_run_unread(client_of, at_work, control):
    client, address = client_of("operator"), reverse("pipeline-declare", args=["performance"])
    form = form_of(client.get(reverse("pipeline-declaration", args=["performance"])), address)
    assert form["version"] == "0"
    declare(client, DECLARATION.replace("85", "90"))
    mine = {"text": DECLARATION.replace("85", "80"), "reason": "calmer"}
    page = client.post(address, {**mine, "version": form["version"]})
    assert page.status_code == 422 and "1 was created in the meantime by operator" in source_of(page)
    assert PipelineVersion.objects.count() == 1
    again = form_of(page, address)
    assert again["version"] == "1" and "80" in source_of(page)
    assert client.post(address, {**mine, "version": again["version"]}).status_code == 302


def test_a_new_application_does_not_take_the_place_of_another(client_of, at_work):
    page = declare(client_of("operator"), DECLARATION, "new")
    assert page.status_code == 422 and "performance, which already exists" in source_of(page)
    assert not PipelineVersion.objects.exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("SEQ(busy; load)", "SEQ(busy; "), "line 10"),
        (("[telemetry]", "[nowhere]"), "nowhere is not a queue"),
        (("SEQ(busy; load)", "SEQ(busy; outage)"), "cycle"),
        (("name: performance", "name: other"), "other"),
        ((DECLARATION, "  "), "text"),
    ],
)
def test_a_declaration_that_is_wrong_is_refused_with_its_place_and_kept_in_the_form(
    client_of, at_work, control, change, says
):
    text = DECLARATION.replace(*change)
    page = declare(client_of("operator"), text)
    assert page.status_code == 422
    assert says in page.content.decode()
    assert not PipelineVersion.objects.exists()
    assert "performance" not in Declarations(control).load_wanted()


def previewed(client, text):
    return client.post(reverse("pipeline-declaration-preview", args=["performance"]), {"text": text}).json()


def test_a_text_says_before_it_runs_whether_it_is_valid_and_what_differs(client_of, at_work):
    client = client_of("operator")
    same = previewed(client, DECLARATION)
    assert same["sentence"].endswith("No differences.") and same["difference"] == []
    other = previewed(client, DECLARATION.replace("85", "90"))
    assert other["sentence"].startswith("The declaration is valid: performance reads telemetry and has")
    assert "2 lines differ" in other["sentence"]
    changed = [each for each in other["difference"] if each["sign"] in "+-"]
    assert [each["sign"] for each in changed] == ["-", "+"] and "90" in changed[1]["text"]
    wrong = previewed(client, DECLARATION.replace("SEQ(busy; load)", "SEQ(busy; "))
    assert wrong["line"] == 10 and "line 10" in wrong["sentence"]
    assert {"busy", "load"} <= set(wrong["names"]["symbols"]) and "value" in wrong["names"]["columns"]
    assert not PipelineVersion.objects.exists()
    viewer = client_of("viewer").post(reverse("pipeline-declaration-preview", args=["performance"]))
    assert viewer.status_code == 403


def test_the_text_as_shipped_can_be_seen_and_run_again(client_of, at_work, control):
    changed = DECLARATION.replace("85", "90")
    Declarations(control, DeclarationText("performance", 0, DECLARATION)).note_shipped()
    Declarations(control).note_at_work(DeclarationText("performance", 1, changed))
    address = reverse("pipeline-declaration", args=["performance"])
    assert "?version=shipped" in client_of("viewer").get(address).content.decode()
    page = client_of("operator").get(f"{address}?version=shipped")
    assert page.context["text"] == DECLARATION
    assert [line.words.strip() for line in page.context["difference"].lines if line.sign == "+"] != []
    assert "value &gt; 85" in page.content.decode()


def test_an_active_version_that_the_control_server_has_forgotten_is_sent_again(client_of, at_work, control):
    declare(client_of("operator"), DECLARATION)
    control.delete("weir:pipeline:wanted")
    reconcile_versions(control)
    assert Declarations(control).load_wanted()["performance"].version == 1


CRITERIA = DECLARATION.replace("key: source", "key: source\ncriteria: {slow: 2.5, loud: 1}")


@pytest.fixture
def with_criteria(at_work, control):
    Declarations(control).note_at_work(DeclarationText("performance", 0, CRITERIA))


def test_a_criterion_is_held_until_it_expires_or_somebody_ends_it_and_all_is_audited(client_of, with_criteria, control):
    client = client_of("operator")
    given = {"criterion": "slow", "value": "7.5", "minutes": "10", "reason": "a noisy day"}
    client.post(reverse("criterion-hold", args=["performance"]), given)
    controls = Controls.read(control.get(keys.PIPELINE_CONTROLS.build("performance")), Controls(criteria={"slow": 2.5}))
    now = time.time()
    assert controls.freeze(now).criteria == {"slow": 7.5}
    assert controls.freeze(now + 601).criteria == {"slow": 2.5}, "it ends by the clock alone"
    entry = AuditEntry.objects.get(action="pipeline.steer")
    assert (entry.target, entry.reason, entry.after["slow"]["value"]) == ("performance/slow", "a noisy day", 7.5)
    client.post(reverse("manual-change-extend"), {"key": "criterion/performance/slow", "minutes": "10"})
    controls = Controls.read(control.get(keys.PIPELINE_CONTROLS.build("performance")), Controls(criteria={"slow": 2.5}))
    assert controls.freeze(now + 1_190).criteria == {"slow": 7.5}, "it is extended"
    assert controls.freeze(now + 1_210).criteria == {"slow": 2.5}
    client.post(reverse("criterion-release", args=["performance", "slow"]))
    controls = Controls.read(control.get(keys.PIPELINE_CONTROLS.build("performance")), Controls(criteria={"slow": 2.5}))
    assert controls.freeze(now).criteria == {"slow": 2.5}
    assert AuditEntry.objects.filter(action="pipeline.steer").count() == 3


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"criterion": "other"}, "criterion"),
        ({"value": "x"}, "value"),
        ({"minutes": "-1"}, "minutes"),
        ({"reason": " "}, "reason"),
    ],
)
def test_a_criterion_is_not_held_by_what_makes_no_sense(change, field, client_of, with_criteria, control):
    given = {"criterion": "slow", "value": "7.5", "minutes": "10", "reason": "a noisy day", **change}
    address = reverse("criterion-hold", args=["performance"])
    answer = client_of("operator").post(address, given, headers={"Accept": "application/json"})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert control.get(keys.PIPELINE_CONTROLS.build("performance")) is None
    assert not AuditEntry.objects.exists()


def test_only_an_administrator_holds_a_criterion_without_an_end(client_of, with_criteria):
    given = {"criterion": "slow", "value": "1", "minutes": "endless", "reason": "for good"}
    address = reverse("criterion-hold", args=["performance"])
    assert client_of("operator").post(address, given).status_code == 403
    assert client_of("administrator").post(address, given).status_code == 302


def order_of(control):
    return json.loads(control.hget(keys.PIPELINE_ORDERS, "performance"))


def test_an_operator_restarts_stops_and_starts_an_application_and_each_is_audited(client_of, at_work, control):
    address, operator = reverse("pipeline-order", args=["performance"]), client_of("operator")
    for order, (stopped, restart) in (("restart", (False, 1)), ("stop", (True, 1)), ("start", (False, 1))):
        assert operator.post(address, {"order": order, "reason": "why not"}).status_code == 302
        found = order_of(control)
        assert (found["stopped"], found["restart"], found["by"]) == (stopped, restart, "operator")
    noted = AuditEntry.objects.order_by("pk").values_list("action", "target", "reason")
    assert list(noted) == [(f"pipeline.{order}", "performance", "why not") for order in ("restart", "stop", "start")]


@pytest.mark.parametrize(
    ("posted", "field"),
    [
        ({"order": "start", "reason": "why"}, "application"),
        ({"order": "burn", "reason": "why"}, "order"),
        ({"order": "restart"}, "reason"),
    ],
)
def test_an_order_that_makes_no_sense_changes_nothing(client_of, at_work, control, posted, field):
    address = reverse("pipeline-order", args=["performance"])
    answer = client_of("operator").post(address, posted, headers={"accept": "application/json"})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert not control.exists(keys.PIPELINE_ORDERS) and not AuditEntry.objects.exists()


def test_the_page_says_why_it_failed_when_the_next_try_is_and_what_the_log_says(
    client_of, at_work, control, stored_snapshot
):
    line = {"at": 1_795_000_000.0, "level": "ERROR", "text": "the first exception <b>"}
    control.set(keys.PIPELINE_LOG, json.dumps({"lines": [line]}))
    row = stored_snapshot["pipeline"]["applications"]["performance"]
    row["state"] = "failed"
    row["restarts"] = {
        "count": 3, "tries": 2, "failed_at": 1_795_000_000.0, "next_try_at": 1_795_000_004.0,
        "last_error": "a worker timed out",
    }  # fmt: skip
    control.set(keys.SNAPSHOT, json.dumps(stored_snapshot))
    text = source_of(client_of("operator").get(reverse("pipeline-application", args=["performance"])))
    for said in ("3 restarts", "2 attempts: a worker timed out", "Next attempt", "first exception &lt;b&gt;"):
        assert said in text, said
    seen = source_of(client_of("viewer").get(reverse("pipeline-application", args=["performance"])))
    assert "first exception" not in seen and "Restart performance" not in seen
