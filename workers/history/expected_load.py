"""The load that loops expect until their next decision, read from the snapshot's forecasts.

A forecast is used from `MIN_DAYS` of history on, because it needs the same time of an earlier day. It is left out while
it is outdated or uncertain, and while the queue is paused. Then only the current load counts, and the reason is
reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.framework.reason import format_percent
from workers.documents.plants import LoadForecast
from workers.documents.snapshot import Snapshot
from workers.history.forecasts import QUEUE

# Rates per minute vary around the forecast, and the limits have to be kept in 97.7 % of the minutes. The margin is
# limited, because an uncertain forecast must not take many nodes into use.
DEVIATIONS, MAX_MARGIN = 2.0, 0.1
MIN_DAYS, MAX_AGE_SECONDS, MAX_DEVIATION = 1.0, 300.0, 0.3
# Below this rate, and below this share of the forecast, the cost of an event is not measurable.
MIN_PER_SECOND, MIN_SHARE = 1.0, 0.05
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ExpectedLoad:
    """The highest expected load within a horizon: its time (Unix), and the rate of each queue at that time.

    at: None if the load is not expected to rise. missing: why queues are not forecast, empty if all are.
    """

    at: float | None
    rates: Mapping[str, float]
    missing: str = ""


def find_peak(
    snapshot: Snapshot,
    rates: Mapping[str, float],
    arrivals: Mapping[str, float],
    horizon_seconds: float,
    now_seconds: float,
) -> ExpectedLoad:
    """Return the peak of the load of all queues together.

    rates: the current load of each queue, arrivals: its current events/s. The load of an event stays the same, so a
    queue's load is rate * forecast / arrivals, and never below the current one. If more events arrive than were
    forecast for now, for example because a ramp is early, the difference is added to the forecast. If the margin for
    noise is greater than this difference, the margin is added instead.
    """
    paths, reasons = dict[str, Floats](), list[str]()
    times: Floats = np.zeros(0)
    for name in rates:
        row = snapshot.forecasts.get(QUEUE + name)
        why = "the queue is paused" if snapshot.queues[name].pauses else None
        if (why := why or explain_unused(row, horizon_seconds, now_seconds)) is not None or row is None:
            reasons.append(f"{name}: {why}")
            continue
        windows = _list_windows(row, horizon_seconds, now_seconds)
        times = np.asarray(row.at + (windows + 0.5) * row.window_seconds)
        means, deviations = (np.asarray(values)[windows] for values in (row.mean_per_second, row.deviation_per_second))
        is_measurable = arrivals[name] >= max(MIN_PER_SECOND, MIN_SHARE * float(means.max()))
        cost = rates[name] / arrivals[name] if is_measurable else 1.0
        surplus = max(0.0, arrivals[name] - means[0])
        highest = means + np.maximum(surplus, np.minimum(DEVIATIONS * deviations, MAX_MARGIN * means))
        paths[name] = np.asarray(np.maximum(cost * highest, rates[name]))
    more = f" (queues without a forecast: {len(reasons)})" if len(reasons) > 1 else ""
    missing = f"{reasons[0]}{more}" if reasons else ""
    if not paths:
        return ExpectedLoad(None, rates, missing)
    peak = int(np.argmax(np.sum(list(paths.values()), axis=0)))
    expected = {name: float(paths[name][peak]) if name in paths else rate for name, rate in rates.items()}
    rises = sum(expected.values()) > sum(rates.values())
    return ExpectedLoad(float(times[peak]) if rises else None, expected if rises else rates, missing)


def predict_arrivals(snapshot: Snapshot, queue: str, horizon_seconds: float, now_seconds: float) -> float | None:
    """Return the highest expected arrivals of a queue within a horizon, events/s; None without a forecast."""
    row = snapshot.forecasts.get(QUEUE + queue)
    if row is None or explain_unused(row, horizon_seconds, now_seconds) is not None:
        return None
    return float(np.asarray(row.mean_per_second)[_list_windows(row, horizon_seconds, now_seconds)].max())


def explain_unused(row: LoadForecast | None, horizon_seconds: float, now_seconds: float) -> str | None:
    """Return why a forecast is not used, or None if it is."""
    if row is None or row.mean_per_second is None:
        return (row.refused if row else None) or "no forecast yet"
    if row.days < MIN_DAYS:
        return f"the forecast needs {MIN_DAYS:g} day of history and has {24 * row.days:.1f} h"
    if abs(now_seconds - row.at) > MAX_AGE_SECONDS:
        return f"the forecast is {abs(now_seconds - row.at):.0f} s old"
    windows = _list_windows(row, horizon_seconds, now_seconds)
    mean = float(np.asarray(row.mean_per_second)[windows].sum())
    deviation = float(np.asarray(row.deviation_per_second)[windows].sum())
    if deviation > MAX_DEVIATION * mean:
        return f"the forecast is too uncertain: its standard deviation is {format_percent(deviation / max(mean, 1e-9))}"
    return None


def _list_windows(row: LoadForecast, horizon_seconds: float, now_seconds: float) -> npt.NDArray[np.int64]:
    """Return the numbers of the windows from now to the horizon, at least one."""
    count = len(row.mean_per_second or ())
    first, last = ((seconds - row.at) / row.window_seconds for seconds in (now_seconds, now_seconds + horizon_seconds))
    return np.arange(min(max(0, int(first)), count - 1), min(max(1, int(np.ceil(last))), count))
