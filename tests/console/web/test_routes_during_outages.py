"""Behind every door while a part of Weir is away: what stands there is an answer, and never a failure."""

from collections.abc import Iterator

import pytest
import redis

from tests.console.accounts.route_permissions import ROUTE_PERMISSIONS, request_route, taken_back
from tests.console.accounts.things import things as things

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
# What leads out of this process, or starts long work, is another test's.
ELSEWHERE = ("healthz", "readyz")


def failing(browsers, things, ready) -> Iterator[tuple[str, int]]:
    browser = browsers["administrator"]
    browser.raise_request_exception = False
    for door in ROUTE_PERMISSIONS:
        ready()
        cookies = browser.cookies.copy()
        status = taken_back(lambda door=door: request_route(browser, door, things))
        browser.cookies = cookies
        if status >= 500 and status != 503 and not door.endswith(ELSEWHERE):
            yield door, status


def test_while_nobody_has_observed_the_plant_nothing_fails(browsers, things, control: redis.Redis):
    """An empty control server: no snapshot, no topology, no heartbeat."""
    assert list(failing(browsers, things, control.flushall)) == []


def test_while_the_control_server_is_away_nothing_fails(browsers, things, control, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert list(failing(browsers, things, lambda: None)) == []
