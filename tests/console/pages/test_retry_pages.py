"""Retry plans on pages and over the API: dry run, proposal, approval as shown, and everything in the audit log."""

import time
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.actions import dead_letters
from tests.console.page_form import audited, fetch, form_of, refused
from tests.workers.retries.samples import PLANT, build_failed, store
from workers.plants.models import RegisteredPlant
from workers.retries import plans, runner
from workers.retries.items import decode_items
from workers.retries.models import RetryPlan
from workers.retries.outlets import open_plan_outlet
from workers.retries.runner import PlanClock
from workers.windows.models import PlannedWindow

pytestmark = pytest.mark.django_db
REASON = {"reason": "the bank is back"}
SEARCH = {"plant": PLANT, "q": "state:failed"}


@pytest.fixture
def shop(db):
    RegisteredPlant.objects.create(name=PLANT, kind="celery", url="redis://127.0.0.1:6379/0")
    now = time.time()
    store(*(build_failed(number, ended=now) for number in range(5)), build_failed(9, are_exact=False))


def propose(browser):
    answer = fetch(browser, "/retries/propose", {**SEARCH, "min_rate": "1", "max_rate": "50", **REASON})
    return RetryPlan.objects.get(pk=answer.json()["plan"])


def test_a_dry_run_counts_what_would_be_sent_and_what_would_not_and_stores_nothing(operator, shop):
    page = operator.get(f"/retries/?{urlencode(SEARCH)}")
    assert page.context["preview"].tasks == 5
    text = " ".join(page.content.decode().split())
    assert "1 have arguments that are not known exactly" in text
    assert not RetryPlan.objects.exists()


def test_a_plan_is_proposed_from_its_dry_run_and_approved_as_shown(operator, shop):
    form = form_of(operator.get(f"/retries/?{urlencode(SEARCH)}"), "/retries/propose")
    made = fetch(operator, "/retries/propose", form | {"max_rate": "50"} | REASON).json()
    plan = RetryPlan.objects.get(pk=made["plan"])
    assert (plan.total, plan.max_rate, plan.skipped) == (5, 50.0, {"arguments": 1})
    assert [item.id for item in decode_items(plan.items)] == [f"task-{number}" for number in range(5)]
    shown = form_of(operator.get(made["go"]), f"/retries/{plan.pk}/approve")
    assert fetch(operator, f"/retries/{plan.pk}/approve", {**shown, "hash": "0" * 64, **REASON}).status_code == 422
    assert fetch(operator, f"/retries/{plan.pk}/approve", shown | REASON).status_code == 200
    plan.refresh_from_db()
    assert plan.state == "approved"
    target = f"retry plan {plan.pk}"
    assert audited() == [("operator", "retry.propose", target), ("operator", "retry.approve", target)]


def test_a_plan_is_paused_continued_and_ended_and_each_step_is_audited(operator, shop):
    plan = propose(operator)
    fetch(operator, f"/retries/{plan.pk}/approve", {"hash": plan.hash, **REASON})
    states = []
    for action in ("pause", "resume", "end"):
        assert fetch(operator, f"/retries/{plan.pk}/{action}", REASON).status_code == 200
        plan.refresh_from_db()
        states.append(plan.state)
    assert states == ["paused", "approved", "ending"]
    assert [action for _, action, _ in audited()][2:] == ["retry.pause", "retry.resume", "retry.end"]


def test_a_change_freeze_of_the_plant_holds_approvals_and_permits_to_reject_and_pause(operator, shop):
    waiting, sending, rejected = (propose(operator) for _ in range(3))
    fetch(operator, f"/retries/{sending.pk}/approve", {"hash": sending.hash, **REASON})
    begun = timezone.now() - timedelta(minutes=1)
    PlannedWindow.objects.create(
        name="Year end",
        kind="freeze",
        scope=[f"plant/{PLANT}"],
        local_start=f"{begun:%Y-%m-%dT%H:%M:%S}",
        time_zone="UTC",
        duration_minutes=60,
        last_end=begun + timedelta(minutes=60),
        owner=User.objects.get(username="operator"),
        reason="Closing the books",
    )
    approval = fetch(operator, f"/retries/{waiting.pk}/approve", {"hash": waiting.hash, **REASON})
    assert approval.status_code == 403 and "Year end" in approval.content.decode()
    assert fetch(operator, f"/retries/{sending.pk}/pause", REASON).status_code == 200
    assert fetch(operator, f"/retries/{sending.pk}/resume", REASON).status_code == 403
    assert fetch(operator, f"/retries/{rejected.pk}/reject", REASON).status_code == 200
    assert sorted(RetryPlan.objects.values_list("state", flat=True)) == ["paused", "proposed", "rejected"]


def test_a_plan_names_what_its_tasks_call(operator, shop):
    form = form_of(operator.get(f"/retries/?{urlencode(SEARCH)}"), "/retries/propose")
    made = fetch(operator, "/retries/propose", form | {"calls": "pay.example:443"} | REASON).json()
    assert RetryPlan.objects.get(pk=made["plan"]).calls == "pay.example:443"
    assert "pay.example:443" in operator.get(made["go"]).content.decode()
    assert refused(fetch(operator, "/retries/propose", form | {"calls": "p" * 121} | REASON)) == ["calls"]


def test_an_unknown_plant_or_an_invalid_pace_is_refused_with_its_field(operator, shop):
    assert refused(fetch(operator, "/retries/propose", {**SEARCH, "plant": "other", **REASON})) == ["plant"]
    limits = {"min_rate": "5", "max_rate": "1"}
    assert refused(fetch(operator, "/retries/propose", {**SEARCH, **limits, **REASON})) == ["max_rate"]
    assert refused(fetch(operator, "/retries/propose", {**SEARCH, "q": "state:lost", **REASON})) == ["state"]


def test_the_api_previews_proposes_and_shows_plans(secrets, shop):
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['operator']}"}
    browser, body = Client(), {"plant": PLANT, "query": "state:failed"}

    def post(path, **values):
        return browser.post(f"/api/v1/{path}", values, content_type="application/json", **headers).json()

    assert post("retries/preview", **body)["tasks"] == 5
    plan = post("retries", **body, reason="the bank is back")
    assert plan["state"] == "proposed" and plan["queues"] == {"pay": 5}
    assert post(f"retries/{plan['id']}/approve", hash=plan["hash"], reason="agreed")["state"] == "approved"
    listed = browser.get("/api/v1/retries?plant=shop", **headers).json()["retries"]
    assert [row["id"] for row in listed] == [plan["id"]]


def test_a_viewer_sees_plans_and_changes_none(viewer, operator, shop):
    plan = propose(operator)
    page = viewer.get(f"/retries/{plan.pk}/")
    assert page.status_code == 200 and "requires the operator role" in page.content.decode()
    assert fetch(viewer, f"/retries/{plan.pk}/approve", {"hash": plan.hash, **REASON}).status_code == 403


def test_dead_letters_are_requeued_by_an_approved_plan_and_what_changed_meanwhile_is_not(operator, poisoned, control):
    letters = operator.get("/dead-letters/").context["page_obj"].object_list
    posted = {"action": "retry", "letter": [str(letter.name) for letter in letters], **REASON}
    plan = RetryPlan.objects.get(pk=fetch(operator, "/dead-letters/act", posted).json()["plan"])
    assert (plan.kind, plan.plant, plan.queues) == ("dead-letters", "main", {"alert": 2})
    plans.approve(plan.pk, plan.hash, None, "agreed", now=timezone.now())
    first = letters[0].name
    dead_letters.place_of(first).discard({first.id: first.digest})
    seconds = [0.0]

    def pass_time(passed):
        seconds[0] += passed

    clock = PlanClock(lambda: time.time() + seconds[0], lambda: seconds[0], pass_time)
    runner.advance("main", control, open_plan_outlet, clock)
    plan.refresh_from_db()
    assert (plan.state, plan.sent, plan.succeeded) == ("done", 2, 2)
    assert operator.get("/dead-letters/").context["page_obj"].paginator.count == 0
