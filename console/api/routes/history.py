"""History: the observer's rows, as columns for a chart, over any time range."""

import math
from typing import Annotated, cast

from django.conf import settings
from django.http import HttpRequest
from ninja import Query

from common.errors import BadInput
from console.api.answer.router import Router
from console.api.request.authentication import actor_for
from console.api.schemas.timeline import HistorySeries
from console.connections.control_server import control
from console.display.downsampling import downsample
from workers.history import metric_history

router = Router(tags=["plant"])
MAXIMUM_POINTS = 5_000
MAXIMUM_SERIES = 100
MAXIMUM_SECONDS = 400 * 86_400


@router.get("/history", response=HistorySeries, summary="Get time series")
def get_history(
    request: HttpRequest,
    series: Annotated[list[str], Query(...)],
    since: Annotated[float, Query(..., alias="from")],
    until: Annotated[float, Query(..., alias="to")],
    points: int = 600,
) -> HistorySeries:
    """Return `{"time": [seconds], "series": {name: [value or null]}}` from `from` to `to` (Unix time).

    A series is named by its path in the snapshot, such as `queues.alert.waiting_events`; repeat `series` for several.
    At most `points` rows are returned (2 to 5000); if there are more, each interval keeps its minimum and maximum.
    """
    actor_for(request, "plant.view")
    _check(series, since, until, points)
    columns = metric_history.read_columns(control(), settings.WEIR_DATA, since, until, series)
    times = cast(list[float], columns.pop("at"))
    time, kept = downsample(times, columns, points)
    return {"time": time, "series": kept}


def _check(series: list[str], since: float, until: float, points: int) -> None:
    if not 1 <= len(series) <= MAXIMUM_SERIES:
        raise BadInput("series", f"must have 1 to {MAXIMUM_SERIES} names, not {len(series)}.")
    if "at" in series or any(not name for name in series):
        raise BadInput("series", "must be paths in the snapshot, such as totals.in_per_second.")
    if not math.isfinite(since):
        raise BadInput("from", "must be a Unix time in seconds.")
    if not math.isfinite(until) or until <= since:
        raise BadInput("to", "must be a Unix time in seconds, after from.")
    if until - since > MAXIMUM_SECONDS:
        raise BadInput("from", f"must be at most {MAXIMUM_SECONDS // 86_400} days before to.")
    if not 2 <= points <= MAXIMUM_POINTS:
        raise BadInput("points", f"must be 2 to {MAXIMUM_POINTS}, not {points}.")
