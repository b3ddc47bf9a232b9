"""The plant's clock is the control server's, whatever a host's own says; a task ends by it."""

from datetime import UTC, datetime, timedelta

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from workers.coordination.celery_worker import set_expiry
from workers.coordination.plant_clock import ASK_SECONDS, PlantClock

SERVER = 1_800_000_000.0


class Host:
    """A host whose clock is `ahead` of the server's; `asked`: how often the server was."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.passed, self.ahead, self.asked, self.is_away = 0.0, ahead, 0, False
        self.answers_after = self.stood_still = 0.0  # seconds
        self.clock = PlantClock(self.ask, lambda: self.server() + self.ahead, lambda: 77.0 + self.passed)

    def server(self) -> float:
        return SERVER + self.passed

    def ask(self) -> float:
        self.asked += 1
        if self.is_away:
            raise redis.ConnectionError
        self.passed += self.answers_after / 2
        shown = self.server() - self.stood_still
        self.passed += self.answers_after / 2
        return shown


@given(steps=st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(-1e6, 1e6)), max_size=20))
def test_it_shows_the_servers_time_however_the_hosts_clock_is_set(steps):
    host = Host()
    for passed, ahead in steps:
        host.passed, host.ahead = host.passed + passed, ahead
        assert host.clock.get_unix_time() == pytest.approx(host.server(), abs=1e-3)
        assert host.clock.compute_ahead_seconds() == pytest.approx(ahead, abs=1e-3)


def test_the_server_is_asked_rarely():
    host = Host(600.0)
    for _ in range(100):
        host.clock.get_unix_time()
        host.passed += ASK_SECONDS / 10
    assert host.asked == 10


def test_an_answer_on_a_slow_way_is_of_its_middle_and_one_that_took_long_changes_nothing():
    host = Host(600.0)
    host.answers_after = 0.4
    assert host.clock.get_unix_time() == pytest.approx(host.server())
    host.passed += ASK_SECONDS
    before = host.server()
    host.answers_after = 3.0
    host.stood_still = 2.5  # on its way back
    assert host.clock.get_unix_time() == pytest.approx(host.server()) == before + 3.0


def test_while_the_server_is_away_it_goes_on_by_itself():
    host = Host(600.0)
    host.clock.get_unix_time()
    host.is_away = True
    host.passed += 100.0
    host.ahead = -900.0
    assert host.clock.get_unix_time() == pytest.approx(host.server())


def test_where_the_server_has_never_answered_it_is_the_hosts_own():
    host = Host(600.0)
    host.is_away = True
    assert host.clock.get_unix_time() == pytest.approx(host.server() + 600.0)
    host.is_away = False
    host.passed += ASK_SECONDS
    assert host.clock.get_unix_time() == pytest.approx(host.server())


AT = datetime(2026, 11, 27, 3, 12, tzinfo=UTC)


@pytest.mark.parametrize("ahead_seconds", [600.0, -600.0, 0.75])
def test_what_a_host_sends_ends_when_it_would_if_its_clock_were_right(ahead_seconds):
    headers = {"id": "a task", "expires": (AT + timedelta(seconds=ahead_seconds)).isoformat()}
    set_expiry(headers, lambda: ahead_seconds)
    assert headers == {"id": "a task", "expires": AT.isoformat()}


@pytest.mark.parametrize("headers", [{}, {"expires": None}])
def test_a_task_without_an_end_asks_for_no_time(headers):
    before = dict(headers)
    set_expiry(headers, lambda: pytest.fail("nobody needs to know"))
    assert headers == before
