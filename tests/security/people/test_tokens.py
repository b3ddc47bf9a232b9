"""API tokens: what one is able to do never exceeds what it was made for, nor outlives it."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.accounts import tokens
from console.accounts.access import build_user_actor, create_token, find_token_actor, require_permission
from console.models import ApiToken, AuditEntry, Identity, Submission
from queues.models import Queue
from workers.models import Loop

pytestmark = pytest.mark.django_db


def made(owner, name, role, days=1, **scope):
    return create_token(owner, name, role, timezone.now() + timedelta(days=days), **scope)[1]


def post(secret, address, body):
    headers = {"Authorization": f"Bearer {secret}"}
    return Client().post(address, body, content_type="application/json", headers=headers)


def test_a_token_makes_no_other_token(people, control):
    for role in ("viewer", "operator", "administrator"):
        answer = post(made(people["administrator"], f"of-{role}", role), "/api/v1/tokens", {"name": role})
        assert answer.status_code == 403, role
    assert ApiToken.objects.count() == 3


def test_a_new_token_takes_the_place_of_those_that_ended_long_ago(people, control):
    """A pipeline that makes itself a token a run does not fill the table."""
    owner, now = people["administrator"], timezone.now()
    for name, days in {"long-over": -401, "lately-over": -399, "good": 1}.items():
        create_token(owner, name, "viewer", now + timedelta(days=days))
    create_token(owner, "long-revoked", "viewer", now + timedelta(days=1))
    ApiToken.objects.filter(name="long-revoked").update(revoked_at=now - timedelta(days=401))
    tokens.make(build_user_actor(owner), "new", "viewer", 1, now)
    assert set(ApiToken.objects.values_list("name", flat=True)) == {"lately-over", "good", "new"}


def test_a_viewers_token_revokes_no_administrators_token(people, control):
    weak = made(people["administrator"], "weak", "viewer")
    strong = create_token(people["administrator"], "strong", "administrator", timezone.now() + timedelta(1))
    assert post(weak, f"/api/v1/tokens/{strong[0].pk}/revoke", {}).status_code == 403
    assert ApiToken.objects.get(name="strong").revoked_at is None


def test_a_token_ends_no_session_and_manages_no_user(people, browsers, stored_snapshot):
    browsers["administrator"].get("/nodes/")
    secret = made(people["administrator"], "t", "administrator")
    session = people["administrator"].weir_sessions.get()
    assert post(secret, f"/api/v1/sessions/{session.pk}/end", {}).status_code == 403
    body = {"username": "mallory", "role": "administrator", "reason": "a test"}
    assert post(secret, "/api/v1/users", body).status_code == 403
    assert not User.objects.filter(username="mallory").exists()


def test_tokens_stay_dead_when_their_owner_is_enabled_again(people, browsers, control):
    secret = made(people["operator"], "t", "operator")
    for change in ("disable", "enable"):
        posted = {"change": change, "reason": "a test"}
        answer = browsers["administrator"].post(f"/settings/users/{people['operator'].pk}", posted)
        assert answer.status_code == 302
    assert User.objects.get(username="operator").is_active
    assert find_token_actor(secret, timezone.now()) is None


def test_a_password_that_an_administrator_resets_ends_the_tokens_too(people, browsers, control):
    secret = made(people["operator"], "t", "operator")
    browsers["administrator"].post(f"/settings/users/{people['operator'].pk}/reset", {"reason": "a test"})
    assert find_token_actor(secret, timezone.now()) is None


@pytest.fixture
def queues(db):
    for name in ("alert", "process"):
        Queue.objects.create(name=name, kind="jobs")


def minted(secret, **wanted):
    body = {"name": "child", "role": "viewer", "days": 9, **wanted}
    return post(secret, "/api/v1/tokens", body)


def test_a_child_neither_exceeds_nor_outlives_its_parent(people, control, queues):
    scope = {"queues": ["alert"], "actions": ["token.mint", "events", "plant.view"]}
    secret = made(people["administrator"], "parent", "operator", **scope)
    answer = minted(secret, role="producer")
    assert answer.status_code == 201
    child, parent = ApiToken.objects.get(name="child"), ApiToken.objects.get(name="parent")
    assert child.parent == parent and child.expires_at <= parent.expires_at
    assert (child.queues, child.actions) == (["alert"], ["events", "plant.view"])
    for wanted, field in (
        ({"role": "administrator"}, "role"),
        ({"queues": ["process"]}, "queues"),
        ({"actions": ["override"]}, "actions"),
        ({"actions": ["token.mint"]}, "actions"),
        ({"actions": ["account.change"]}, "actions"),
    ):
        answer = minted(secret, name="greedy", **wanted)
        assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])


def test_a_child_makes_no_token(people, control):
    secret = made(people["operator"], "parent", "operator", actions=["token.mint", "plant"])
    child = minted(secret).json()["token"]
    assert minted(child, name="grandchild").status_code == 403


@pytest.mark.parametrize("actions", [["token.mint"], ["token.mint", "user.manage"]])
def test_a_token_that_only_makes_tokens_makes_none_that_may_more(actions, people, control):
    secret = made(people["administrator"], "parent", "administrator", actions=actions)
    answer = minted(secret, role="administrator")
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["actions"])
    assert not ApiToken.objects.filter(name="child").exists()


@pytest.mark.parametrize(
    ("of_parent", "own", "may", "may_not"),
    [
        (["token.mint"], [], [], ["plant.view", "settings.change", "token.mint"]),
        (["override"], [], ["override.set"], ["plant.view"]),
        (["override.end"], ["override"], ["override.end"], ["override.set"]),
        (["override"], ["override.end"], ["override.end"], ["override.set"]),
        (["user.manage"], ["user.manage"], [], ["user.manage"]),
        ([], ["override"], ["override.set"], ["plant.view"]),
    ],
)
def test_a_child_made_before_has_no_more_than_its_parent_now(of_parent, own, may, may_not, people):
    owner, until = people["administrator"], timezone.now() + timedelta(days=1)
    parent = create_token(owner, "parent", "administrator", until, actions=of_parent)[0]
    child = create_token(owner, "child", "administrator", until, actions=own, parent=parent)[1]
    actor = find_token_actor(child, timezone.now())
    assert [each for each in (*may, *may_not) if actor.may(each)] == may


@pytest.mark.parametrize("end", ["revoked", "expired", "deleted"])
def test_a_child_dies_with_its_parent(end, people, control):
    now = timezone.now()
    parent, secret = create_token(
        people["operator"], "parent", "operator", now + timedelta(days=1), actions=["token.mint", "plant"]
    )
    child = minted(secret).json()["token"]
    assert find_token_actor(child, now).may("plant.view")
    if end == "deleted":
        parent.delete()
    else:
        ApiToken.objects.filter(pk=parent.pk).update(**{"revoked_at": now} if end == "revoked" else {"expires_at": now})
    assert find_token_actor(child, now) is None


def test_revoking_a_token_revokes_its_children_and_says_so(people, browsers, control):
    parent, secret = create_token(
        people["operator"], "parent", "operator", timezone.now() + timedelta(days=1), actions=["token.mint", "plant"]
    )
    minted(secret)
    assert browsers["operator"].post(f"/settings/tokens/{parent.pk}/revoke").status_code == 302
    assert ApiToken.objects.filter(revoked_at=None).count() == 0
    assert list(AuditEntry.objects.filter(action="token.revoke").values_list("target", flat=True)) == [
        "parent",
        "child",
    ]


@pytest.mark.parametrize(
    ("actions", "action", "may"),
    [
        ([], "override.set", True),
        ([], "token.mint", False),
        ([], "user.manage", False),
        ([], "account.change", False),
        (["override"], "override.end", True),
        (["override.end"], "override.set", False),
        (["override"], "plant.view", False),
        (["token", "user"], "token.mint", False),
        (["token.mint"], "token.mint", True),
        (["user.manage"], "user.manage", True),
        (["account.change"], "account.change", False),
    ],
)
def test_a_token_has_the_actions_that_it_names(actions, action, may, people):
    secret = made(people["administrator"], "t", "administrator", actions=actions)
    assert find_token_actor(secret, timezone.now()).may(action) is may


def test_a_token_publishes_to_its_queues_only(people, control, queues):
    secret = made(people["operator"], "t", "producer", queues=["alert"])
    actor = find_token_actor(secret, timezone.now())
    require_permission(actor, "events.publish", ["alert"])
    answer = post(secret, "/api/v1/queues/process/events", {"type": "a"})
    assert answer.status_code == 403 and "process" in answer.content.decode()


def test_a_token_limited_to_queues_does_nothing_to_the_whole_plant(people, control, queues):
    secret = made(people["administrator"], "t", "administrator", queues=["alert"])
    body = {"value": 600, "reason": "a test"}
    assert post(secret, "/api/v1/settings/plan.expires_seconds", body).status_code == 403


@pytest.mark.parametrize("end", ["revoked", "made up", "role lost"])
def test_an_answer_is_not_repeated_to_who_may_not_have_it(end, people, control):
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate")
    secret = made(people["operator"], "t", "operator")
    headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": "0123456789abcdef"}
    body = {"loop": loop.pk, "name": "upper_limit", "value": 500, "reason": "a test", "minutes": 2}

    def ask():
        return Client().post("/api/v1/overrides", body, content_type="application/json", headers=headers).status_code

    assert [ask(), ask()] == [201, 201]
    if end == "revoked":
        ApiToken.objects.update(revoked_at=timezone.now())
    if end == "made up":
        ApiToken.objects.all().delete()
    if end == "role lost":
        people["operator"].groups.clear()
    assert ask() == (403 if end == "role lost" else 401)
    assert "upper_limit" not in Submission.objects.get().body  # nor does the database say what was answered


def test_the_settings_page_limits_a_token_to_queues_and_actions_and_says_so(people, browsers, stored_snapshot):
    Queue.objects.get_or_create(name="alert", defaults={"kind": "jobs"})
    form = {"name": "shop", "role": "operator", "days": "3", "queues": ["alert"], "actions": "events"}
    answer = browsers["operator"].post("/settings/tokens", form)
    assert answer.status_code == 200, answer.content[:400]
    token = ApiToken.objects.get(name="shop")
    assert (token.queues, token.actions) == (["alert"], ["events"])
    assert "Queues: alert" in browsers["operator"].get("/settings/").content.decode()


def test_who_logs_in_at_a_provider_is_offered_no_password_and_can_set_none(people, browsers, stored_snapshot):
    Identity.objects.create(user=people["operator"], issuer="https://id.example", subject="4711")
    assert b'name="old_password"' not in browsers["operator"].get("/settings/").content
    before = people["operator"].password
    assert browsers["operator"].post("/settings/", {"old_password": "x"}).status_code == 422
    assert User.objects.get(username="operator").password == before
