"""A token publishes no more than its quota of events and bytes per second, over all web processes."""

import gzip
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.accounts.tokens import BURST_SECONDS, Quota
from console.models import ApiToken
from queues import keys
from queues.control.connection import NotReplicated
from queues.segments.segment import Segment
from tests.security.requests.producing import ADDRESS, LINES
from tests.security.requests.producing import producer as producer

pytestmark = pytest.mark.django_db
SAME_SERVER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
EVENTS = b'{"type":"a"}\n'


def limit(events=None, size_bytes=None):
    """The producer's token with its own quota."""
    token = ApiToken.objects.get(name="of-producer")
    token.quota_events_per_second, token.quota_bytes_per_second = events, size_bytes
    token.save()
    return token


def pass_seconds(control, subject, seconds):
    """Let the bucket believe that it was looked at so much earlier."""
    control.hincrbyfloat(keys.QUOTA.build(subject), "at", -seconds)


def test_a_token_over_its_events_is_refused_with_when_to_send_again(producer, control):
    token = limit(events=10)
    assert producer(EVENTS * (10 * BURST_SECONDS + 500)).status_code == 202
    refused = producer(EVENTS)
    assert refused.status_code == 429
    assert 25 < int(refused["Retry-After"]) <= 51  # 500 events over, at 10/s, less what the host took meanwhile
    assert "10 events/s" in str(refused.json())
    pass_seconds(control, f"token:{token.pk}", 20)
    assert producer(EVENTS).status_code == 429
    pass_seconds(control, f"token:{token.pk}", 31)
    assert producer(EVENTS).status_code == 202


def test_what_is_owed_passes_also_after_the_servers_clock_was_set_back(producer, control):
    subject = f"token:{limit(events=10).pk}"
    assert producer(EVENTS * (10 * BURST_SECONDS + 500)).status_code == 202
    pass_seconds(control, subject, -3_600)
    assert int(producer(EVENTS)["Retry-After"]) <= 51
    pass_seconds(control, subject, 51)
    assert producer(EVENTS).status_code == 202


def test_bytes_are_counted_as_they_are_unpacked(producer, control):
    limit(size_bytes=1_000)
    assert producer(gzip.compress(EVENTS * 1_000), HTTP_CONTENT_ENCODING="gzip").status_code == 202
    assert producer(EVENTS).status_code == 429


@pytest.mark.parametrize(("body", "status"), [(EVENTS * 3, 202), (b"no JSON\n", 400)])
def test_what_is_stored_is_answered_so_also_where_its_quota_can_not_be_booked(
    producer, nodes, monkeypatch, body, status
):
    def charge(*_):
        raise NotReplicated("no replica has it yet")

    monkeypatch.setattr(Quota, "charge", charge)
    answer = producer(body)
    assert answer.status_code == status
    stored = sum(Segment(server.client(), "alert").get_counters()["inserted_events"] for server in nodes.values())
    assert answer.json()["published"] == stored == (3 if status == 202 else 0)


def test_one_tokens_quota_is_not_anothers(producer, browsers, secrets, control):
    limit(events=1)
    assert producer(EVENTS * 100).status_code == 202
    assert producer(EVENTS).status_code == 429
    answer = browsers["anonymous"].post(
        ADDRESS, EVENTS, content_type=LINES, HTTP_AUTHORIZATION=f"Bearer {secrets['operator']}"
    )
    assert answer.status_code == 202


@SAME_SERVER
@given(st.lists(st.tuples(st.integers(0, 400), st.floats(0.0, 5.0)), max_size=20))
def test_the_average_never_exceeds_the_rate_by_more_than_the_burst_and_one_request(control, requests):
    quota = Quota("test", 100, 10**9)
    control.delete(keys.QUOTA.build("test"))
    taken, elapsed, largest, began = 0, 0.0, 0, time.monotonic()
    for events, pause_seconds in requests:
        if not quota.wait_seconds(1):
            quota.charge(events, 0)
            taken, largest = taken + events, max(largest, events)
        pass_seconds(control, "test", pause_seconds)
        elapsed += pause_seconds
    # The server's own clock ran on while this did.
    assert taken <= 100 * (BURST_SECONDS + elapsed + time.monotonic() - began + 1) + largest


@SAME_SERVER
@given(st.integers(60, 5_000), st.integers(1, 1_000))
def test_a_request_is_admitted_when_retry_after_has_passed(control, owed_seconds, rate):
    """More is owed than the server's own clock makes up for while this runs."""
    quota, over = Quota("test", rate, 10**9), owed_seconds * rate
    control.delete(keys.QUOTA.build("test"))
    quota.charge(rate * BURST_SECONDS + over, 0)
    wait_seconds = quota.wait_seconds(1)
    assert 0 < wait_seconds <= over / rate + 2
    pass_seconds(control, "test", wait_seconds)
    assert quota.wait_seconds(1) == 0


def set_quota(browser, token, **body):
    return browser.post(f"/api/v1/tokens/{token.pk}/quota", body, content_type="application/json")


def test_only_who_manages_users_gives_a_token_another_quota(browsers, secrets):
    token = limit(events=5)
    body = {"events_per_second": 10**6, "reason": "a burst"}
    assert set_quota(browsers["operator"], token, **body).status_code == 403
    answer = set_quota(browsers["administrator"], token, **body)
    assert answer.json()["quota_events_per_second"] == 10**6
    assert set_quota(browsers["administrator"], token, reason="back").json()["quota_events_per_second"] is None


@pytest.mark.parametrize("value", [0, -1, 10**30, 1.5, True, "many"])
def test_a_quota_that_is_none_is_refused_naming_it(browsers, secrets, value):
    answer = set_quota(browsers["administrator"], limit(), events_per_second=value, reason="a test")
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["events_per_second"])
