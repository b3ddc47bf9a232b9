"""Windows recur in local time, as RFC 5545 says, whatever the clocks do."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from workers.windows.recurrence import Recurrence, list_time_zones, read_recurrence, read_time_zone

BERLIN = "Europe/Berlin"
SUNDAYS = "FREQ=WEEKLY;BYDAY=SU"


def local(text: str) -> datetime:
    """A local time, which has no zone."""
    return datetime.fromisoformat(text)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


def instants(recurrence: Recurrence, since: datetime, until: datetime) -> list[datetime]:
    starts = map(recurrence.convert_to_instant, recurrence.list_starts(since, until))
    return [start for start in starts if since <= start <= until]


def test_two_o_clock_stays_two_o_clock_when_the_clocks_change():
    recurrence = read_recurrence(local("2026-03-22T02:00"), BERLIN, SUNDAYS)
    assert instants(recurrence, utc(2026, 3, 20), utc(2026, 4, 6)) == [
        utc(2026, 3, 22, 1),
        utc(2026, 3, 29, 1),  # 02:00 doesn't exist: with the offset before the change, this is 03:00
        utc(2026, 4, 5, 0),
    ]


def test_a_local_time_that_does_not_exist_is_read_with_the_offset_before_the_gap():
    recurrence = Recurrence(local("2026-03-29T02:30"), BERLIN)
    assert recurrence.convert_to_instant(recurrence.start) == utc(2026, 3, 29, 1, 30)
    note = recurrence.explain_clock_change(recurrence.start)
    assert note == "02:30 doesn't exist on this day, so the window starts at 03:30."


def test_a_local_time_that_occurs_twice_counts_the_first_time():
    recurrence = Recurrence(local("2026-10-25T02:30"), BERLIN)
    assert recurrence.convert_to_instant(recurrence.start) == utc(2026, 10, 25, 0, 30)
    assert recurrence.explain_clock_change(recurrence.start).startswith("02:30 occurs twice on this day.")
    assert recurrence.explain_clock_change(local("2026-10-24T02:30")) == ""


@given(
    zone=st.sampled_from(list_time_zones()),
    start=st.datetimes(local("2020-01-01T00:00"), local("2030-01-01T00:00")).map(lambda at: at.replace(microsecond=0)),
    days=st.integers(0, 400),
)
def test_a_daily_window_starts_at_its_local_time_each_day_in_every_zone(zone, start, days):
    recurrence = read_recurrence(start, zone, "FREQ=DAILY")
    local = start + timedelta(days=days)
    at = recurrence.convert_to_instant(local)
    assert local in recurrence.list_starts(at, at)
    shown = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
    note = recurrence.explain_clock_change(local)
    if "doesn't exist" in note:
        assert shown > local
    else:
        assert shown == local
    if not note:
        assert at == local.replace(tzinfo=ZoneInfo(zone), fold=1).astimezone(UTC)


@given(
    zone=st.sampled_from((BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC")),
    start=st.datetimes(local("2024-01-01T00:00"), local("2028-01-01T00:00")).map(lambda at: at.replace(microsecond=0)),
    rule=st.sampled_from(("FREQ=DAILY;INTERVAL=3", SUNDAYS, "FREQ=MONTHLY;BYDAY=-1SA", "FREQ=YEARLY", "")),
    since=st.datetimes(local("2024-01-01T00:00"), local("2029-01-01T00:00")),
    lengths=st.tuples(st.integers(1, 60), st.integers(1, 60)),
)
def test_two_adjoining_ranges_have_the_starts_of_the_whole_range(zone, start, rule, since, lengths):
    recurrence = read_recurrence(start, zone, rule)
    first = since.replace(tzinfo=UTC)
    middle = first + timedelta(days=lengths[0])
    last = middle + timedelta(days=lengths[1])
    parts = [*instants(recurrence, first, middle), *instants(recurrence, middle, last)]
    assert sorted(set(parts)) == instants(recurrence, first, last)


@pytest.mark.parametrize(
    ("until", "last"),
    [("20260405", utc(2026, 4, 5)), ("20260404T235959Z", utc(2026, 3, 29, 1)), ("20260405T000000Z", utc(2026, 4, 5))],
)
def test_the_end_of_a_rule_is_included(until, last):
    recurrence = read_recurrence(local("2026-03-22T02:00"), BERLIN, f"{SUNDAYS};UNTIL={until}")
    assert recurrence.convert_to_instant(recurrence.find_last_start()) == last


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("FREQ=HOURLY", "at most once a day"),
        ("every Sunday", "must be a recurrence rule"),
        ("FREQ=DAILY;BYHOUR=1,2,3", "can't have BYHOUR"),
        ("FREQ=MONTHLY;BYMONTHDAY=31;BYMONTH=2", "never occurs"),
        ("FREQ=DAILY;INTERVAL=7;BYDAY=MO", "never occurs"),
        ("FREQ=WEEKLY;INTERVAL=0", "from 1 to 1000"),
        ("FREQ=WEEKLY;COUNT=2;UNTIL=20270101", "both COUNT and UNTIL"),
        ("FREQ=WEEKLY;UNTIL=20261350", "is not a date"),
        ("FREQ=WEEKLY;UNTIL=99991231", "more than 20 years"),
        ("FREQ=WEEKLY;BYDAY=XX", "can't be read"),
        ("FREQ=YEARLY;BYMONTH=13", "never occurs|can't be read"),
        (3, "must be text"),
    ],
)
def test_a_rule_that_no_window_can_have_is_rejected_with_the_reason(rule, why):
    with pytest.raises(BadInput, match=why) as refused:
        read_recurrence(local("2026-03-22T02:00"), BERLIN, rule)
    assert refused.value.field == "rrule"


def test_an_unknown_time_zone_is_rejected_with_a_similar_one():
    with pytest.raises(BadInput, match="did you mean Europe/Berlin"):
        read_time_zone("Europe/Berlim")
