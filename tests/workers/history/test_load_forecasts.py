"""What will be offered is foreseen from what was measured and from training sets; unfit sets are refused."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.stored_document import convert_to_plain
from queues import keys
from tests.workers.snapshot.test_local_plant import documented
from workers.history.forecasts import ForecastSubjects, ForecastWatch, MinuteRates
from workers.history.training_sets import TABLE, TrainingRefused, load_newest_set

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()
DAY = 86_400
SERIES = "queues.orders.in_per_second"
SHOP = ForecastSubjects(("orders",), {"shop": ("orders",)})


def rate(at):
    return 100.0 + 80.0 * np.sin(2 * math.pi * np.asarray(at) / DAY)


def write_day(data, day, queue="orders", window=600, schema=TABLE, **changed):
    begin = int(datetime.combine(day, datetime.min.time(), UTC).timestamp())
    times = list(range(begin, begin + DAY, window))
    rows = {name: [None] * len(times) for name in schema.names}
    rows |= {"time": times, "type": [""] * len(times), "rate_per_second": list(rate(times)), **changed}
    path = data / "training" / f"queue={queue}" / f"day={day.isoformat()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(rows, schema=schema), path)
    return path


def measure(control, begin, rates, series="queues.orders.in_per_second"):
    pipe = control.pipeline()
    for second, each in enumerate(rates):
        at = int((begin + second) * 1000)
        pipe.xadd(keys.METRICS, {series: f"{each:g}"}, id=f"{at}-0")
    pipe.execute()


def days_before(count, now=NOON):
    today = datetime.fromtimestamp(now, UTC).date()
    return [today - timedelta(days=each) for each in range(count, 0, -1)]


def loads(watch, subjects, now=NOON):
    watch.collect(subjects, now)
    watch.wait()
    return watch.collect(subjects, now + 1).loads


def test_what_comes_by_day_is_forecast_an_hour_before_it_comes(tmp_path, control):
    for day in days_before(6):
        write_day(tmp_path, day)
    watch = ForecastWatch.load(control, tmp_path)
    assert watch.collect(SHOP, NOON).loads == {}
    rows = loads(watch, SHOP)
    row = rows["shop"]
    assert row == rows["queue:orders"], "the application reads this queue alone"
    assert set(convert_to_plain(row)) == set(documented()["forecasts"]["performance"])
    assert row.trained_until == "2026-11-17" and row.refused is None and row.days > 5.9
    ahead = NOON + (np.arange(len(row.mean_per_second)) + 0.5) * row.window_seconds
    # The newest measurement is twelve hours old: only the day's shape can tell.
    assert np.abs(np.asarray(row.mean_per_second) - rate(ahead)).max() < 25


def test_the_load_of_an_application_is_that_of_its_queues_together():
    at = NOON - 60.0 * np.arange(120)[::-1] - 30

    def minutes(series, now):
        return at, np.asarray([np.full(at.size, 40.0 if "orders" in name else 10.0) for name in series])

    rows = loads(ForecastWatch(minutes), ForecastSubjects(("orders", "logs"), {"shop": ("orders", "logs")}))
    assert rows["shop"].mean_per_second == pytest.approx([50.0] * 15, rel=0.05)
    both = np.add(rows["queue:orders"].deviation_per_second, rows["queue:logs"].deviation_per_second)
    assert rows["shop"].deviation_per_second == pytest.approx(both, abs=0.002)


def test_what_comes_to_a_plant_of_others_is_forecast_from_what_was_measured_there(tmp_path, control):
    write_day(tmp_path, days_before(1)[0], queue="shop")  # of a queue that has the plant's name
    measure(control, NOON - 600, [40.0] * 600, series="plants.shop.in_per_second")
    rows = loads(ForecastWatch.load(control, tmp_path), ForecastSubjects(("shop",), plants=("shop",)))
    assert rows["plant:shop"].trained_until is None and rows["queue:shop"].trained_until == "2026-11-17"
    assert rows["plant:shop"].mean_per_second == pytest.approx([40.0] * 15, rel=0.05)


def test_a_ramp_of_every_day_is_forecast_at_its_minute():
    """With equal periods of 45 minutes, a third of the rise was expected a quarter of an hour before it began."""
    at = NOON - 60.0 * np.arange(5 * 1440)[::-1] - 30
    rates = np.where((at - NOON - 300) % DAY < 8 * 3_600, 300.0, 100.0)  # from 12:05 on
    watch = ForecastWatch(lambda series, now: (at, np.tile(rates, (len(series), 1))))
    means = loads(watch, SHOP)["queue:orders"].mean_per_second
    assert max(means[:3]) < 140 and min(means[8:]) > 250


def test_what_is_known_is_not_read_again_and_what_is_forgotten_is_old(tmp_path, control):
    history = MinuteRates(control, tmp_path)
    measure(control, NOON - 90, [4.0] * 90)
    first = history.build([SERIES], NOON)
    control.xtrim(keys.METRICS, minid=f"{int((NOON - 60) * 1000)}-0", approximate=False)
    measure(control, NOON, [8.0] * 60)
    at, (rates,) = history.build([SERIES], NOON + 60)
    # The minute that was not over is read again, and the others are remembered.
    assert first[1].tolist() == [[4.0, 4.0]] and rates.tolist() == [4.0, 4.0, 8.0]
    assert (np.diff(at) > 0).all()
    assert history.build([SERIES], NOON + 8 * DAY)[0].size == 0


def broken(series, now):
    raise RuntimeError("a bug")


@pytest.mark.parametrize(
    ("minutes", "why"),
    [
        (lambda series, now: (now - 30 - np.asarray([60.0, 0.0]), np.ones((len(series), 2))), "2 of 4 minutes"),
        (broken, "RuntimeError"),
    ],
)
def test_a_short_history_or_an_error_gives_no_forecast_and_a_reason(minutes, why):
    row = loads(ForecastWatch(minutes), SHOP)["shop"]
    assert row.mean_per_second is None and why in row.refused


def test_without_a_set_there_is_none_and_without_a_measurement_nothing(tmp_path, control):
    assert load_newest_set(tmp_path, "orders", NOON) is None
    assert loads(ForecastWatch.load(control, tmp_path), SHOP)["shop"].mean_per_second is None


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: write_day(data, days_before(20)[0]), "ends on 2026-10-29, 20 days ago"),
        (
            lambda data: write_day(data, days_before(1)[0], schema=TABLE.append(pa.field("more", pa.int64()))),
            "does not have the columns",
        ),
        (lambda data: write_day(data, days_before(1)[0]).write_bytes(b"PAR1"), "cannot be read"),
        (
            lambda data: [write_day(data, each, window=600 * (1 + place)) for place, each in enumerate(days_before(2))],
            "days with different window lengths",
        ),
        (lambda data: write_day(data, days_before(1)[0], window=7_200), "windows of equal length"),
        (
            lambda data: write_day(data, days_before(1)[0]).rename(
                data / "training" / "queue=orders" / "day=soon.parquet"
            ),
            "has no date in its name",
        ),
    ],
)
def test_a_set_that_is_stale_or_none_is_refused_with_the_reason_and_the_measured_still_serves(
    tmp_path, control, damage, why
):
    damage(tmp_path)
    with pytest.raises(TrainingRefused, match=why):
        load_newest_set(tmp_path, "orders", NOON)
    measure(control, NOON - 600, [7.0] * 600)
    row = loads(ForecastWatch.load(control, tmp_path), SHOP)["shop"]
    assert row.trained_until is None and why in row.refused and row.mean_per_second is not None
