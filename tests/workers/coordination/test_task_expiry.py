"""A task ends by the plant's clock, whatever that of its sender or of its worker says."""

from datetime import UTC, datetime, timedelta

import pytest

from workers.coordination.celery_worker import set_expiry

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
