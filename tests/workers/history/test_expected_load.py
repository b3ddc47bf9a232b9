"""What loops expect of the load until they decide again, and why they may expect nothing."""

import pytest

from tests.workers.snapshots import snapshot_of
from workers.history.expected_load import find_peak, predict_arrivals

NOW = 1_796_024_400.0


def plant(**forecast):
    row = {
        "at": NOW - 60,
        "window_seconds": 60.0,
        "mean_per_second": [100.0, 110.0, 150.0, 120.0, 900.0],
        "deviation_per_second": [5.0] * 5,
        "days": 3.0,
        **forecast,
    }
    queues = {"orders": {"kind": "jobs", "in_per_second": 100.0}, "logs": {"kind": "pipeline", "in_per_second": 10.0}}
    return snapshot_of({"at": NOW, "queues": queues, "forecasts": {"queue:orders": row}})


def expect(snapshot, load=200.0, horizon=180.0):
    return find_peak(snapshot, {"orders": load, "logs": 40.0}, {"orders": 100.0, "logs": 10.0}, horizon, NOW)


def test_the_peak_within_the_horizon_counts_at_the_cost_of_an_event():
    peak = expect(plant())
    assert peak.rates == {"orders": 320.0, "logs": 40.0}, "two per event, and logs without a forecast as now"
    assert peak.at == NOW + 90 and peak.missing == "logs: no forecast yet"
    assert predict_arrivals(plant(), "orders", 180.0, NOW) == 150.0


def test_minutes_may_exceed_the_forecast_by_two_deviations_and_by_a_tenth_at_most():
    peaks = [expect(plant(deviation_per_second=[deviation] * 5)) for deviation in (0.0, 5.0, 7.5, 30.0)]
    assert [peak.rates["orders"] for peak in peaks] == [300.0, 320.0, 330.0, 330.0]


def test_a_ramp_that_is_early_is_added_to_the_forecast():
    early = plant(mean_per_second=[60.0, 70.0, 110.0, 90.0, 900.0])
    assert expect(early).rates["orders"] == 2 * (110 + 100 - 70)


def test_a_load_that_falls_counts_as_it_is_now():
    peak = expect(plant(mean_per_second=[90.0] * 5))
    assert peak.at is None and peak.rates["orders"] == 200.0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"days": 0.5}, "needs 1 day of history and has 12.0 h"),
        ({"mean_per_second": None, "refused": "collecting data: 2 of 4 minutes"}, "collecting data"),
        ({"at": NOW - 900}, "900 s old"),
        ({"deviation_per_second": [50.0] * 5}, "too uncertain"),
    ],
)
def test_a_forecast_that_is_not_reliable_is_left_out_with_the_reason(change, why):
    peak = expect(plant(**change))
    assert peak.at is None and peak.rates["orders"] == 200.0
    assert why in peak.missing and "queues without a forecast: 2" in peak.missing
    assert predict_arrivals(plant(**change), "orders", 180.0, NOW) is None
