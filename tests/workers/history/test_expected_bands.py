"""Bands are made a quarter of an hour before their time, and stand in the snapshot and in the history."""

import numpy as np
import pytest

from common.stored_document import replace_fields
from controllers.design.expected_band import AHEAD_SECONDS, ForecastBand
from tests.workers.snapshots import snapshot_of
from workers.documents.snapshot import ExpectedBand, ExpectedBands
from workers.history import forecasts, metrics
from workers.history.forecasts import ForecastSubjects, ForecastWatch, _RateWatch

NOW = 1_800_000_000.0
HOUR = NOW - 60.0 * np.arange(60)[::-1] - 30


def watch(rate=25.0, asked=None):
    def minutes(series, now):
        if asked is not None:
            asked.append(list(series))
        return HOUR, np.full((len(series), HOUR.size), rate)

    return ForecastWatch(minutes)


def rows(watch, queues=("alert",), now=NOW):
    watch.collect(ForecastSubjects(queues), now)
    watch.wait()
    return watch.collect(ForecastSubjects(queues), now).bands


def test_each_queue_and_all_together_have_a_band_with_the_newest_whole_minute():
    found = rows(watch())
    assert set(found.totals) == set(found.queues["alert"]) == {"in_per_second", "out_per_second"}
    band = found.queues["alert"]["in_per_second"]
    assert band.low <= 25 <= band.high and band.minute == 25
    assert band.days == pytest.approx(59 / 1440, abs=0.001)


def test_a_band_is_in_force_when_its_time_has_come():
    plans = _RateWatch()
    first, second = ForecastBand(1, 2, 1.0), ForecastBand(3, 4, 1.0)
    assert plans.plan(first, NOW) is first  # there is no better one
    assert plans.plan(second, NOW + 60) is first
    assert plans.plan(None, NOW + AHEAD_SECONDS + 59) is first
    assert plans.plan(None, NOW + AHEAD_SECONDS + 60) is second


def test_it_asks_once_a_minute_and_for_no_more_queues_than_it_can(monkeypatch):
    monkeypatch.setattr(forecasts, "MAX_QUEUES", 2)
    asked = []
    bands = watch(asked=asked)
    names = [f"q{number:03}" for number in range(5)]
    for second in range(60):
        rows(bands, names, NOW + second)
    assert len(asked) == 1 and len(asked[0]) == 2 * 3
    rows(bands, names, NOW + 60)
    assert len(asked) == 2


def test_when_a_rate_went_to_another_level_stands_with_its_band():
    def minutes(series, now):
        rates = np.where(HOUR < NOW - 1200, 25.0, 80.0)
        return HOUR, np.tile(rates, (len(series), 1))

    (change,) = rows(ForecastWatch(minutes)).queues["alert"]["in_per_second"].changes
    assert (change.before, change.after) == (25, 80)
    assert change.at == pytest.approx(NOW - 1200, abs=60)


def test_a_minute_that_is_not_there_is_said_and_a_queue_that_is_gone_has_none():
    late = rows(watch(), now=NOW + 600)
    assert late.queues["alert"]["in_per_second"].minute is None
    bands = watch()
    rows(bands, ("alert", "process"))
    assert set(bands.collect(ForecastSubjects(("process",)), NOW + 1).bands.queues) == {"process"}


def test_what_fails_ends_neither_the_watch_nor_says_what_was(caplog):
    failing = {"now": False}

    def minutes(series, now):
        if failing["now"]:
            raise OSError("the disk is away")
        return HOUR, np.full((len(series), HOUR.size), 25.0)

    bands = ForecastWatch(minutes)
    assert rows(bands).totals
    failing["now"] = True
    assert rows(bands, now=NOW + 60) == ExpectedBands()
    assert "Computing the forecasts failed" in caplog.text


def test_the_history_keeps_both_edges(control):
    band = ExpectedBand(low=20.0, high=30.0, days=2.0, minute=25.0)
    bands = ExpectedBands(totals={"in_per_second": band}, queues={"alert": {"out_per_second": band}})
    figures = dict(metrics.iterate_figures(replace_fields(snapshot_of({}), bands=bands)))
    assert figures["bands.totals.in_per_second.low"] == 20.0
    assert figures["bands.queues.alert.out_per_second.high"] == 30.0
