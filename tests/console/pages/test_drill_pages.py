"""The pages of drills: who may start one and where, what a drill shows while it runs, and its results."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from common import environment as variables
from console.actions.lab import drills
from console.connections import supervisor
from console.connections.supervisor import NoSupervisor
from console.models import AuditEntry, Drill
from queues.models import Node
from tests.console.rows import an_alert
from tests.console.served import PASSWORD
from workers.alerts.lifecycle.models import Receiver
from workers.objectives.models import Objective
from workers.plants.models import RegisteredPlant
from workers.steering import plant_settings

pytestmark = pytest.mark.django_db


@pytest.fixture
def started(monkeypatch, stored_snapshot):
    """The names of processes that the supervisor of ./run was asked to start."""
    names = []
    monkeypatch.setenv(variables.SUPERVISOR.name, "/nowhere")
    monkeypatch.setattr(supervisor, "start", names.append)
    for number in (1, 2):
        Node.objects.create(name=f"n{number}", url=f"redis://127.0.0.1:{number}/0")
    return names


def a_drill(**fields):
    given = {"scenario": "slow-handler", "subjects": {"queue": "slow", "node": "n1"}, "starter": "operator"}
    return Drill.objects.create(**{**given, "person": "operator", "due_at": timezone.now(), **fields})


def a_result(days_ago, person, seconds, score, **fields):
    begin = timezone.now() - timedelta(days=days_ago)
    over = {"started_at": begin, "alerted_at": begin, "noticed_at": begin + timedelta(seconds=seconds / 2)}
    over |= {"action_seconds": seconds, "recovered_at": begin + timedelta(seconds=2 * seconds), "score": score}
    return a_drill(person=person, ending="recovered", ended_at=begin + timedelta(minutes=5), **{**over, **fields})


def test_an_operator_starts_a_drill_which_the_supervisor_runs(operator, started):
    answer = operator.post("/drills/start", {"scenario": "burst"})
    drill = Drill.objects.get()
    assert answer.url == f"/drills/{drill.pk}/" and started == ["drill"]
    assert (drill.scenario, drill.person) == ("burst", "operator") and drill.subjects["node"] in ("n1", "n2")
    assert AuditEntry.objects.get(action="drill.start").target == f"drill {drill.pk} burst"
    assert "The fault starts within" in operator.get(answer.url).text


def test_without_the_supervisor_of_run_no_drill_starts(operator, stored_snapshot):
    answer = operator.post("/drills/start", {"scenario": "burst"})
    assert answer.status_code == 422 and "only on the plant that ./run starts" in answer.text
    assert not Drill.objects.exists()


def test_a_plant_in_production_offers_and_starts_no_drill(operator, started):
    plant_settings.change("plant.production", 1, None, timezone.now())
    page = operator.get("/drills/").text
    assert "marked as production" in page and "Start drill" not in page
    assert operator.post("/drills/start", {"scenario": "burst"}).status_code == 422
    assert started == [] and not Drill.objects.exists()


def test_a_plant_with_one_node_starts_no_drill(operator, started):
    Node.objects.get(name="n2").delete()
    answer = operator.post("/drills/start", {"scenario": "node-lost"})
    assert answer.status_code == 422 and "needs 2 nodes" in answer.text and started == []


def test_one_drill_at_a_time(operator, started):
    a_drill()
    answer = operator.post("/drills/start", {"scenario": "burst"})
    assert answer.status_code == 422 and "already running" in answer.text


def test_a_drill_that_the_supervisor_can_not_start_leaves_nothing(operator, started, monkeypatch):
    def fail(name):
        raise NoSupervisor("The supervisor is not responding.")

    monkeypatch.setattr(supervisor, "start", fail)
    assert operator.post("/drills/start", {"scenario": "burst"}).status_code == 422
    assert not Drill.objects.exists()


def test_a_running_drill_shows_its_briefing_and_hints_and_can_be_stopped(operator, started):
    drill = a_drill(started_at=timezone.now())
    page = operator.get(f"/drills/{drill.pk}/").text
    assert "The handler of slow slows down" in page and "Hint 3" in page and "Stop drill" in page
    assert "Debrief" not in page
    operator.post(f"/drills/{drill.pk}/stop")
    drill.refresh_from_db()
    assert drill.stop_requested_at is not None and started == ["drill"]
    assert AuditEntry.objects.filter(action="drill.stop").exists()


def test_the_first_view_of_the_incident_is_the_time_to_notice(operator, started):
    drill = a_drill(started_at=timezone.now() - timedelta(seconds=60))
    alert = an_alert(fired_at=timezone.now() - timedelta(seconds=20))
    operator.get("/alerts/")
    drill.refresh_from_db()
    assert drill.noticed_at is None
    operator.get(f"/alerts/{alert.pk}/")
    drill.refresh_from_db()
    assert drill.noticed_at is not None


def test_a_surprise_drill_tells_neither_its_kind_nor_its_time_before_it_starts(operator, started):
    operator.post("/drills/schedule", {"minutes": "60"})
    drill = Drill.objects.get()
    assert drill.is_surprise and drill.created_at <= drill.due_at <= drill.window_end
    page = operator.get(f"/drills/{drill.pk}/").text
    assert "Surprise drill" in page and "Hint 1" not in page and "Briefing" not in page
    assert AuditEntry.objects.get(action="drill.schedule").target == f"drill {drill.pk}"
    assert operator.get("/api/v1/drills").json()["drills"][0]["scenario"] == ""
    operator.post(f"/drills/{drill.pk}/stop")
    drill.refresh_from_db()
    assert drill.ending == "stopped"


def test_a_scheduled_drill_starts_when_it_is_due(started, people):
    due_at = timezone.now() + timedelta(minutes=10)
    a_drill(is_surprise=True, due_at=due_at, person="")
    assert not drills.start_due(due_at - timedelta(seconds=1)) and started == []
    assert drills.start_due(due_at) and started == ["drill"]


@pytest.mark.parametrize("minutes", ["1", "20000", "soon", ""])
def test_a_window_out_of_range_is_refused(minutes, operator, started):
    assert operator.post("/drills/schedule", {"minutes": minutes}).status_code == 422
    assert not Drill.objects.exists()


def test_results_are_medians_of_the_team_and_rows_of_people(viewer, people):
    for days, person, seconds, score in ((1, "operator", 100, 90), (2, "viewer", 200, 70), (3, "operator", 300, 50)):
        a_result(days, person, seconds, score)
    a_result(60, "operator", 30, 100)
    a_drill(started_at=timezone.now(), ended_at=timezone.now(), ending="stopped")
    answer = viewer.get("/drills/")
    team = answer.context["team"]
    assert (team.notice_seconds, team.action_seconds, team.score, team.drills) == (100.0, 200.0, 70, 3)
    assert [(row.person, row.figures.drills, row.figures.score) for row in answer.context["people"]] == [
        ("operator", 2, 70), ("viewer", 1, 70),
    ]  # fmt: skip
    assert answer.context["practice"].missing == "administrator"
    assert len(answer.context["chart"]["points"]) == 3
    assert len(viewer.get("/drills/?days=90").context["chart"]["points"]) == 4
    slow = next(row for row in answer.context["rows"] if row.scenario.name == "slow-handler")
    assert (slow.runs, slow.action_seconds, slow.last_score) == (4, 30.0, 90)


def test_results_are_exported_with_a_row_for_each_drill_that_has_started(viewer, people):
    a_result(1, "operator", 100, 90)
    a_drill()
    text = b"".join(viewer.get("/api/v1/drills/export?format=csv").streaming_content).decode()
    header, row = text.splitlines()
    assert header.startswith("drill,scenario,person,surprise,started")
    assert ",slow-handler,operator,False," in row and row.endswith(",90,recovered")


@pytest.fixture
def login(people):
    """Where a person's login leads."""

    def log_in(name):
        return Client().post("/login/", {"username": name, "password": PASSWORD}).url

    return log_in


def test_welcome_comes_first_on_a_new_plant_until_an_operator_skips_it(login, operator, started):
    assert (login("operator"), login("viewer")) == ("/welcome/", "/")
    page = operator.get("/welcome/").text
    assert "Send a burst" in page and "Skip to the overview" in page
    assert operator.post("/welcome/skip").url == "/"
    assert login("operator") == "/" and "Open overview" in operator.get("/welcome/").text
    assert AuditEntry.objects.filter(action="welcome.skip").count() == 1


def test_without_drills_the_overview_comes_first(login, stored_snapshot):
    assert login("operator") == "/"


def test_the_steps_of_welcome_are_ticked_by_what_exists(administrator, started):
    def done():
        return [step.is_done for step in administrator.get("/welcome/").context["steps"]]

    assert done() == [True, False, False, False, False]
    a_result(1, "operator", 100, 90)
    Objective.objects.create(name="alert", condition="backlog_seconds <= 30", target=0.99)
    Receiver.objects.create(name="desk", channel="email", settings={"addresses": ["a@example.org"]})
    RegisteredPlant.objects.create(name="east", kind="weir", url="http://east")
    assert done() == [True] * 5


def test_a_running_guided_drill_shows_what_was_observed_and_what_comes_next(operator, started):
    operator.post("/welcome/start", {"scenario": "burst"})
    Drill.objects.update(started_at=timezone.now(), checks={"0": "Incoming events rise from 32 to 619 events/s"})
    answer = operator.get("/welcome/")
    rows = [(row.is_true, row.is_next) for row in answer.context["guided"][0].checks]
    assert rows == [(True, False), (False, True), (False, False)]
    assert "from 32 to 619" in answer.text and answer.text.count("disabled>Start drill") == 2


def test_only_who_may_register_plants_is_led_to_connect_one(operator, administrator, started):
    titles = [[row.title for row in each.get("/welcome/").context["systems"]] for each in (operator, administrator)]
    assert titles[0] == ["Your own events"] and {"Celery", "Kafka", "Your own system"} <= set(titles[1])


def test_a_drill_that_was_started_while_the_process_before_it_ended_is_not_forgotten(operator, started):
    operator.post("/drills/start", {"scenario": "burst"})
    assert drills.start_due(timezone.now()) and started == ["drill", "drill"]
