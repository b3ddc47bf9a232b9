"""When a task runs: in words, and the next time."""

from datetime import UTC, datetime, timedelta

import pytest
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask
from hypothesis import given
from hypothesis import strategies as st

from workers.batch import task_definitions

NOW = datetime(2026, 11, 20, 9, 30, 30, tzinfo=UTC)  # a Friday


def by_interval(seconds: int) -> PeriodicTask:
    return PeriodicTask(interval=IntervalSchedule(every=seconds, period="seconds"), date_changed=NOW)


def by_calendar(line: str) -> PeriodicTask:
    fields = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    row = CrontabSchedule(**dict(zip(fields, line.split(), strict=True)), timezone="UTC")
    return PeriodicTask(crontab=row, date_changed=NOW)


@pytest.mark.parametrize(
    ("periodic", "words"),
    [
        (None, "on request"),
        (by_interval(1), "every second"),
        (by_interval(90), "every 90 seconds"),
        (by_interval(600), "every 10 minutes"),
        (by_interval(3_600), "every hour"),
        (by_interval(172_800), "every 2 days"),
        (by_calendar("40 * * * *"), "hourly at minute 40"),
        (by_calendar("5 3 * * *"), "daily at 03:05 UTC"),
        (by_calendar("0 6 * * 1"), "every Monday at 06:00 UTC"),
        (by_calendar("0 6 1 * *"), "monthly on day 1 at 06:00 UTC"),
        (by_calendar("0 */6 * * *"), "crontab 0 */6 * * * UTC"),
    ],
)
def test_a_schedule_is_said_in_words(periodic, words):
    assert task_definitions.describe_schedule(periodic) == words


@pytest.mark.parametrize(
    ("line", "next_at"),
    [
        ("40 * * * *", datetime(2026, 11, 20, 9, 40, tzinfo=UTC)),
        ("30 9 * * *", datetime(2026, 11, 21, 9, 30, tzinfo=UTC)),
        ("0 6 * * 1", datetime(2026, 11, 23, 6, 0, tzinfo=UTC)),
        ("0 6 29 2 *", datetime(2028, 2, 29, 6, 0, tzinfo=UTC)),
    ],
)
def test_the_calendar_gives_the_next_time(line, next_at):
    assert task_definitions.compute_next_start(by_calendar(line), None, NOW) == next_at
    assert task_definitions.format_crontab_line(by_calendar(line)) == line


@given(st.integers(1, 10**6), st.integers(0, 10**7))
def test_an_interval_counts_from_the_last_start_and_is_at_most_one_interval_ahead(seconds, ago):
    last = NOW - timedelta(seconds=ago)
    found = task_definitions.compute_next_start(by_interval(seconds), last, NOW)
    assert found is not None
    ahead = (found - NOW).total_seconds()
    assert 0 <= ahead <= seconds
    assert (found - last).total_seconds() % seconds == 0


def test_what_is_off_or_has_no_schedule_has_no_next_time():
    off = by_interval(60)
    off.enabled = False
    assert task_definitions.compute_next_start(off, None, NOW) is None
    assert task_definitions.compute_next_start(None, None, NOW) is None
