"""A plant under its load with people at its pages: nothing is lost, and nothing grows that has no bound."""

import pytest

from bench.plant.soak import LIMITS, Samples, fill_charts, run
from queues import keys
from workers.history.metrics import RETAINED_ROWS

SHORT_SECONDS, HOUR_SECONDS = 240.0, 3600.0
A_PLANT = [pytest.mark.slow, pytest.mark.spark]


def sampled(values: list[float]) -> Samples:
    """A sample a minute of one kind of process."""
    samples = Samples()
    for minute, value in enumerate(values):
        samples.add(60.0 * minute, {"web_bytes": value})
    return samples


def test_growth_is_an_hours_and_what_was_taken_while_it_warmed_up_does_not_count():
    warm = [100.0 + minute for minute in range(40)]
    assert sampled([*range(0, 100, 5), *warm]).compute_slope("web_bytes") == pytest.approx(60.0)
    assert sampled([float(minute) for minute in range(20)] + [20.0] * 40).compute_slope("web_bytes") == 0.0


def test_one_sample_that_is_far_off_is_no_growth():
    samples = sampled([20.0] * 59 + [2000.0])
    assert samples.compute_slope("web_bytes") == 0.0 and samples.median("web_bytes") == 20.0


def test_the_charts_are_as_long_as_they_get_and_what_was_in_them_is_their_end(control):
    for value in (1, 2):
        control.xadd(keys.METRICS, {"events": value})
    before = control.xrange(keys.METRICS)
    assert fill_charts(control) == RETAINED_ROWS - 2
    rows = control.xrange(keys.METRICS)
    assert len(rows) == RETAINED_ROWS and rows[-2:] == before
    assert {row[b"events"] for _, row in rows[:-1]} == {b"1"}
    assert fill_charts(control) == 0


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(SHORT_SECONDS, marks=[*A_PLANT, pytest.mark.timeout(1200)]),
        pytest.param(HOUR_SECONDS, marks=[*A_PLANT, pytest.mark.hours, pytest.mark.timeout(2 * 3600)]),
    ],
)
def test_a_plant_under_load_loses_nothing_and_keeps_to_what_an_event_may_take(seconds, record_property):
    """How late events were, and in minutes how memory grew, depend on the host: kept with the run."""
    figures = run(seconds)["figures"]
    for name in ("p99_seconds", "page_p95_seconds", "worst_slope_percent_an_hour"):
        record_property(name, figures[name])
    assert figures["events_lost"] == 0 == figures["pages_failed"], figures
    assert figures["handled_bytes_an_event"] <= LIMITS["handled_bytes_an_event"], figures
    if seconds >= HOUR_SECONDS:
        assert figures["worst_slope_percent_an_hour"] <= LIMITS["worst_slope_percent_an_hour"], figures
