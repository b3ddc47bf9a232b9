"""Keeping data for less than a week takes two persons, by page, API and token; an agreement is good once."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from common.errors import BadInput
from console.accounts.access import Actor
from console.actions import second_person, tasks
from console.actions.tasks import WantedTask
from console.models import AuditEntry
from workers.batch import task_definitions
from workers.batch.job import JobContext
from workers.models import Run, Task

pytestmark = pytest.mark.django_db
SHORT = {"ledger_days": 1, "archive_days": "2"}


@pytest.fixture
def task(db):
    return task_definitions.define("retention", "retention", parameters={"ledger_days": 30})


def somebody(name, role="administrator", **more):
    user, made = User.objects.get_or_create(username=name)
    if made:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    return Actor(more.pop("called", name), role, user=user, **more)


def wanted(**parameters):
    return WantedTask(job="retention", parameters=parameters, parallel=1, requirements=[])


def refused_change(actor, **parameters):
    with pytest.raises(BadInput, match="second user") as refused:
        tasks.change(actor, "retention", wanted(**parameters), "less disk")
    return refused.value


def test_one_person_can_not_shorten_it_and_a_second_can(task):
    first, second = somebody("ann"), somebody("bob")
    assert refused_change(first, **SHORT).field in ("archive_days", "ledger_days")
    assert Task.objects.get().parameters == {"ledger_days": 30}
    refused_change(first, **SHORT)  # again: still the same person
    made = tasks.change(second, "retention", wanted(ledger_days="1", archive_days=2), "agreed")
    assert made.parameters["ledger_days"] in (1, "1")
    proposal = AuditEntry.objects.get(action="retention.propose")
    done = AuditEntry.objects.get(action="task.change")
    assert (proposal.actor, done.actor) == ("ann", "bob")
    assert done.after["agreed_with"] == proposal.sequence


def test_the_second_person_agrees_with_the_very_same_only(task):
    refused_change(somebody("ann"), ledger_days=5)
    refused_change(somebody("bob"), ledger_days=4)
    refused_change(somebody("bob"), ledger_days=5, raw_days=1)
    assert Task.objects.get().parameters == {"ledger_days": 30}


def test_two_tokens_of_one_person_are_one_person(task):
    refused_change(somebody("ann", called="token:a"), **SHORT)
    refused_change(somebody("ann", called="token:b"), **SHORT)
    refused_change(somebody("ann", called="manage.py:ann"), **SHORT)


def test_an_agreement_is_good_for_one_change(task):
    ann, bob = somebody("ann"), somebody("bob")
    refused_change(ann, **SHORT)
    tasks.change(bob, "retention", wanted(**SHORT), "agreed")
    tasks.change(bob, "retention", wanted(ledger_days=30), "back")
    refused_change(bob, **SHORT)


def test_a_proposal_is_void_after_a_day(task):
    ann, bob = somebody("ann"), somebody("bob")
    begin = datetime.now(UTC)
    for who in (ann, bob):
        with pytest.raises(BadInput, match="second user"):
            second_person.require_second_person(who, "task.change", "retention", "retention", SHORT, None, begin)
        begin += timedelta(days=1, seconds=5)


def test_a_run_with_other_parameters_asks_too(task, tmp_path, control):
    where = JobContext(tmp_path, control, datetime.now(UTC))
    ann, bob = somebody("ann", "operator"), somebody("bob", "operator")
    with pytest.raises(BadInput, match="second user"):
        tasks.begin(ann, "retention", SHORT, None, "now", where)
    assert not Run.objects.exists()
    assert tasks.begin(bob, "retention", SHORT, None, "agreed", where).parameters["ledger_days"] == 1


def test_a_new_task_of_the_same_job_asks_too():
    with pytest.raises(BadInput, match="second user"):
        tasks.define(somebody("ann"), "tidy", wanted(snapshot_days=1), "less disk")
    assert not Task.objects.exists()
    tasks.define(somebody("bob"), "tidy", wanted(snapshot_days=1), "agreed")


def test_what_is_in_force_already_is_not_asked_about_again(task):
    Task.objects.update(parameters={"ledger_days": 2})
    for days in (2, 3, 7, 0, 90):
        tasks.change(somebody("ann"), "retention", wanted(ledger_days=days), "longer")
        Task.objects.update(parameters={"ledger_days": 2})
    refused_change(somebody("ann"), ledger_days=1)


def test_the_page_says_who_waits_for_whom(task, browsers, control):
    posted = {"when": "hand", "parallel": "1", "enabled": "1", "reason": "less disk", "set-ledger_days": "1"}
    answer = browsers["operator"].post("/tasks/retention/change", posted)
    assert answer.status_code == 422 and "requires a second user" in answer.content.decode()
    assert "operator proposed at" in browsers["administrator"].get("/tasks/retention/").content.decode()
    assert browsers["administrator"].post("/tasks/retention/change", posted).status_code == 302
    assert Task.objects.get().parameters["ledger_days"] in (1, "1")
    assert "proposed at" not in browsers["administrator"].get("/tasks/retention/").content.decode()


def test_the_api_refuses_the_first_and_does_it_for_the_second(task, secrets, control):
    body = {"reason": "less disk", "job": "retention", "parameters": {"ledger_days": 1}}
    answers = [
        Client()
        .post(
            "/api/v1/tasks/retention",
            body,
            content_type="application/json",
            headers={"Authorization": f"Bearer {secrets[role]}"},
        )
        .status_code
        for role in ("operator", "operator", "administrator")
    ]
    assert answers == [422, 422, 200]
