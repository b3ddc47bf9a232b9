"""Who may do what: one table for every address and every role, and the keys to the doors."""

import ast
import copy
import functools
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

import console
from console.accounts.access import (
    ACTIONS,
    OF_NO_QUEUE,
    OF_THE_PLANT,
    ROLES,
    Actor,
    choose_lower_role,
    create_token,
    digest_of,
    find_token_actor,
    find_user_role,
)
from console.models import ApiToken
from tests.console.accounts.route_permissions import (
    BY_SECRET,
    EVERYBODY,
    ROUTE_PERMISSIONS,
    of_api,
    request_route,
    taken_back,
)
from tests.console.accounts.things import things as things
from tests.console.conftest import PASSWORD
from tests.house import sources

pytestmark = pytest.mark.django_db


def grouped(*doors):
    """The doors by the first part of their route: one test a group, which makes what they share once."""
    groups = defaultdict(list)
    for door in doors:
        groups[door.split(" ", 1)[1].removeprefix("api/v1/").split("/")[0] or "overview"].append(door)
    return [pytest.param(those, id=group) for group, those in sorted(groups.items())]


class RouteRequester:
    """Knocks at one door after another; before each, control server, cookies and database are as at first."""

    def __init__(self, control, things):
        self.control = control
        self.things = things
        self.stored = {key: control.dump(key) for key in control.scan_iter()}

    def status(self, browser, door, **headers):
        cookies = copy.deepcopy(browser.cookies)
        if door == "GET metrics":  # free for this machine alone
            headers = {"HTTP_HOST": "localhost", **headers}
        try:
            return taken_back(functools.partial(request_route, browser, door, self.things, **headers))
        finally:
            browser.cookies = cookies

    def at_each(self, doors):
        for door in doors:
            self.control.flushall()
            for key, value in self.stored.items():
                self.control.restore(key, 0, value)
            yield door


@pytest.fixture
def requester(control, things, stored_snapshot):
    return RouteRequester(control, things)


def admits(door, who):
    least = ROUTE_PERMISSIONS[door]
    return least == "free" or EVERYBODY.index(who) >= EVERYBODY.index(least)


def around(least, everybody=EVERYBODY):
    """Who is just let in, and who is just not."""
    place = 0 if least == "free" else everybody.index(least)
    return everybody[max(0, place - 1) : place + 1]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("every_role", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("doors", grouped(*ROUTE_PERMISSIONS))
def test_a_door_opens_to_its_least_role_and_those_above(doors, every_role, browsers, requester):
    wrong = []
    for door in requester.at_each(doors):
        for who in EVERYBODY if every_role else around(ROUTE_PERMISSIONS[door]):
            status = requester.status(browsers[who], door)
            # A page sends to the login, the API says that it does not know who asks.
            refusal = (401 if of_api(door) else 302) if who == "anonymous" else 403
            if status in (401, 403) if admits(door, who) else status != refusal:
                wrong.append((door, who, status))
    assert not wrong


# What takes a login, or a token whose own actions name it (tests/security/people/test_tokens.py); and what
# people alone decide on (tests/console/actions/test_assistant_proposals.py).
NO_PLAIN_TOKEN = tuple(
    f"api/v1/{each}" for each in ("users", "sessions", "passkeys", "tokens", "proposals/<proposal_id>/")
)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("every_role", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "doors", grouped(*(each for each in ROUTE_PERMISSIONS if of_api(each) and ROUTE_PERMISSIONS[each] != "free"))
)
def test_a_token_opens_the_api_as_far_as_its_role(doors, every_role, secrets, requester):
    wrong = []
    for door in requester.at_each(doors):
        publishes = door.endswith("/events")
        for role in ("producer", *(ROLES if every_role else around(ROUTE_PERMISSIONS[door], ROLES))):
            status = requester.status(Client(), door, HTTP_AUTHORIZATION=f"Bearer {secrets[role]}")
            let_in = publishes if role == "producer" else admits(door, role)
            let_in = let_in and not door.split(" ")[1].startswith(NO_PLAIN_TOKEN)
            let_in = let_in or (publishes and role == "administrator")
            if status in (401, 403) if let_in else status != 403:
                wrong.append((door, role, status))
    assert not wrong


def test_a_token_opens_no_page(secrets, requester):
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['administrator']}"}
    pages = [door for door in ROUTE_PERMISSIONS if ROUTE_PERMISSIONS[door] != "free" and not of_api(door)]
    answers = {door: requester.status(Client(), door, **headers) for door in requester.at_each(pages)}
    assert {door: status for door, status in answers.items() if status != 302} == {}


def test_a_session_without_the_csrf_token_changes_nothing(people, requester):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(people["administrator"], backend="django.contrib.auth.backends.ModelBackend")
    doors = [door for door in ROUTE_PERMISSIONS if door.startswith("POST") and door not in BY_SECRET]
    answers = {door: requester.status(browser, door) for door in requester.at_each(doors)}
    assert {door: status for door, status in answers.items() if status != 403} == {}


def test_an_api_token_needs_no_csrf_token(secrets, things):
    browser = Client(enforce_csrf_checks=True)
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['operator']}"}
    assert request_route(browser, "POST api/v1/overrides/<override_id>/end", things, **headers) == 200


def test_a_wrong_token_does_not_fall_back_to_the_session(browsers, things):
    headers = {"HTTP_AUTHORIZATION": "Bearer weir_nobodys"}
    assert request_route(browsers["administrator"], "GET api/v1/loops", things, **headers) == 401


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic YTpi", "weir_x"])
def test_a_malformed_authorization_is_refused(header, things):
    response = Client().get("/api/v1/loops", HTTP_AUTHORIZATION=header)
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == "Bearer"
    assert "authorization" in response.json()["errors"]


def test_only_the_digest_of_a_token_is_kept(people):
    token, secret = create_token(people["viewer"], "t", "viewer", timezone.now() + timedelta(days=1))
    kept = str(ApiToken.objects.values().get(pk=token.pk))
    assert secret not in kept and digest_of(secret) in kept


def test_a_token_falls_with_its_owners_role(people):
    _, secret = create_token(people["operator"], "t", "operator", timezone.now() + timedelta(days=1))
    people["operator"].groups.set([Group.objects.get(name="viewer")])
    actor = find_token_actor(secret, timezone.now())
    assert actor.role == "viewer"
    assert not actor.may("override.set")


@pytest.mark.parametrize(
    ("token", "owner", "least"),
    [
        ("administrator", "operator", "operator"),
        ("viewer", "administrator", "viewer"),
        ("producer", "operator", "producer"),
        ("producer", "viewer", None),
        ("viewer", None, None),
    ],
)
def test_a_token_never_has_more_than_its_owner(token, owner, least):
    assert choose_lower_role(token, owner) == least


def test_the_highest_group_counts_and_a_superuser_is_an_administrator(people):
    people["viewer"].groups.add(Group.objects.get(name="operator"))
    assert find_user_role(people["viewer"]) == "operator"
    assert find_user_role(User(username="root", is_superuser=True)) == "administrator"
    assert find_user_role(people["stranger"]) is None


@pytest.mark.parametrize("action", ACTIONS)
def test_each_role_may_all_that_a_lower_one_may(action):
    answers = [Actor("somebody", role).may(action) for role in ROLES]
    assert answers == sorted(answers)
    assert answers[-1]
    assert not Actor("nobody", None).may(action)


def test_what_is_of_the_whole_plant_is_shown_to_nobody_who_is_limited_to_queues():
    """The acts that are never asked about with queues, wherever in the console they are asked about."""
    asked = defaultdict(set)
    for path in sorted(Path(console.__file__).parent.rglob("*.py")):
        for call in (each for each in sources.nodes(path) if isinstance(each, ast.Call)):
            named = isinstance(call.func, ast.Name) and call.func.id == "require_permission"
            if named and isinstance(call.args[1], ast.Constant):
                asked[call.args[1].value].add(len(call.args) > 2)
    whole = {action for action, with_queues in asked.items() if with_queues == {False}}
    assert whole - OF_NO_QUEUE == OF_THE_PLANT
    limited = Actor("ada", "administrator", queues=frozenset({"orders"})).list_permissions()
    everywhere = Actor("ada", "administrator").list_permissions()
    offered = {action for action in ACTIONS if limited[action.replace(".", "_")]}
    assert offered == set(ACTIONS) - OF_THE_PLANT and all(everywhere.values())


def test_an_action_that_is_not_in_the_table_is_refused_loudly():
    with pytest.raises(KeyError):
        Actor("somebody", "administrator").may("plant.destroy")


def test_a_login_leads_in_and_a_logout_out(people, control):
    browser = Client()
    assert browser.get("/nodes/").url == "/login/?next=/nodes/"
    answer = browser.post("/login/?next=/nodes/", {"username": "viewer", "password": PASSWORD})
    assert answer.url == "/nodes/"
    assert browser.get("/nodes/").status_code == 200
    assert browser.get("/logout/").status_code == 405
    browser.post("/logout/")
    assert browser.get("/nodes/").status_code == 302


def test_after_five_wrong_passwords_a_page_says_that_the_account_is_locked(people, control):
    answers = [Client().post("/login/", {"username": "viewer", "password": "wrong"}) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [429]
    assert "people/locked_out.html" in [template.name for template in answers[-1].templates]
