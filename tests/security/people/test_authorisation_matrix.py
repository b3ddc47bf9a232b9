"""The authorisation matrix, completed: who has ended is nobody.

The policy and the roles (sessions and tokens of each) are in tests/console/accounts/route_permissions.py. Here: that
pages take no other method, tokens that expired or were revoked, disabled owners, websockets, and reading that writes.
"""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.accounts.access import ACTIONS, PRODUCER, ROLES, create_token
from console.models import ApiToken
from tests.console.accounts.route_permissions import (
    EVERYBODY,
    POLICY,
    ROUTE_PERMISSIONS,
    address_of,
    find_doors,
    of_api,
    request_route,
    routes,
    taken_back,
)
from tests.console.accounts.things import things as things
from tests.console.live.sockets import Socket

pytestmark = pytest.mark.django_db
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
ENDED = ("expired", "revoked", "disabled owner", "owner without a role", "unknown")
# What a request notes of itself: when a session or a token was last seen, what was refused, the lockout.
BOOKKEEPING = re.compile(
    r'(?:INTO|UPDATE|FROM) "(?:django_session|console_(?:usersession|apitoken|audit\w+)|axes_\w+)"'
)
WRITES = re.compile(r"^\s*(?:INSERT|UPDATE|DELETE|REPLACE)", re.IGNORECASE)


def test_the_policy_names_no_door_that_is_gone():
    assert {door for doors in POLICY.values() for door in doors} <= {*find_doors()}


@pytest.mark.thorough
def test_no_page_takes_a_method_that_is_not_declared(browsers, things, stored_snapshot):
    for route in sorted(set(routes())):
        for method in METHODS:
            # Django's login takes a PUT for its POST; the CSRF token is asked for either.
            if f"{method} {route}" in ROUTE_PERMISSIONS or of_api(f"{method} {route}") or route == "login/":
                continue
            answer = browsers["administrator"].generic(method, address_of(route, things))
            # 404: a login that is not configured takes no method at all.
            assert answer.status_code in (404, 405), (method, route, answer.status_code)


def test_every_role_of_the_table_is_a_role():
    assert {*ROUTE_PERMISSIONS.values()} <= {"free", "stranger", *ROLES}
    assert {*ACTIONS.values()} <= {*ROLES}


def ended_token(how, people, role):
    """The secret of a token that was good once."""
    now = timezone.now()
    owner = User.objects.create_user(f"once {how} {role}")
    owner.groups.add(people["administrator"].groups.get())
    token, secret = create_token(owner, f"{how} {role}", role, now + timedelta(days=1))
    if how == "expired":
        ApiToken.objects.filter(pk=token.pk).update(expires_at=now - timedelta(seconds=1))
    elif how == "revoked":
        ApiToken.objects.filter(pk=token.pk).update(revoked_at=now)
    elif how == "disabled owner":
        User.objects.filter(pk=owner.pk).update(is_active=False)
    elif how == "owner without a role":
        owner.groups.clear()
    return "weir_nobodys" if how == "unknown" else secret


# A door is open to the administrator's token or to no token but the producer's: each is tried with those two.
# The long form tries each with the token of every role.
@pytest.mark.sweep(2)
@pytest.mark.parametrize("every_role", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ENDED)
def test_a_token_that_has_ended_opens_nothing(how, every_role, people, things, stored_snapshot, settings):
    secrets = {role: ended_token(how, people, role) for role in (PRODUCER, *ROLES)}
    for door in ROUTE_PERMISSIONS:
        if ROUTE_PERMISSIONS[door] == "free" or not of_api(door):
            continue
        for place, (role, secret) in enumerate(secrets.items()):
            if not (every_role or role == "administrator" or (role == PRODUCER and door.endswith("/events"))):
                continue
            # From an address of its own each, since who guesses tokens is slowed down.
            headers = {"HTTP_AUTHORIZATION": f"Bearer {secret}", "REMOTE_ADDR": f"10.0.{place}.{hash(door) % 250}"}
            status = taken_back(lambda door=door, headers=headers: request_route(Client(), door, things, **headers))
            expected = (401, 403) if how == "owner without a role" else (401, 429)
            assert status in expected, (door, how, status)


@pytest.mark.thorough
def test_somebody_who_was_disabled_has_no_session_left(browsers, people, things, stored_snapshot):
    User.objects.filter(pk=people["administrator"].pk).update(is_active=False)
    for door in ROUTE_PERMISSIONS:
        if ROUTE_PERMISSIONS[door] != "free":
            status = taken_back(lambda door=door: request_route(browsers["administrator"], door, things))
            assert status == (401 if of_api(door) else 302), door


@pytest.mark.thorough
def test_nothing_that_only_reads_writes(browsers, things, stored_snapshot):
    for door in ROUTE_PERMISSIONS:
        if not door.startswith("GET "):
            continue
        with CaptureQueriesContext(connection) as found:
            taken_back(lambda door=door: request_route(browsers["administrator"], door, things))
        written = [each["sql"] for each in found if WRITES.match(each["sql"]) and not BOOKKEEPING.search(each["sql"])]
        assert not written, (door, written)


def handshake(caller, browsers, secrets):
    host = (b"host", b"localhost")
    if caller.startswith("token:"):
        return [host, (b"authorization", f"Bearer {secrets[caller.removeprefix('token:')]}".encode())]
    cookies = "; ".join(f"{name}={each.value}" for name, each in browsers[caller].cookies.items())
    return [host, (b"origin", b"http://localhost"), (b"cookie", cookies.encode())]


@pytest.mark.django_db(transaction=True)
async def test_a_websocket_opens_to_who_may_read(application, browsers, secrets, control_server, stored_snapshot):
    for caller in (*EVERYBODY, *(f"token:{role}" for role in secrets)):
        socket = Socket(application, handshake(caller, browsers, secrets))
        assert await socket.connect(), caller
        if caller.removeprefix("token:") in ROLES:
            assert (await socket.receive())["topic"] == "plant", caller
            await socket.send('{"ask": "everything"}')
            assert await socket.closing_code() == 4400, caller
        else:
            assert await socket.closing_code() == (4401 if caller == "anonymous" else 4403), caller
        await socket.disconnect()
