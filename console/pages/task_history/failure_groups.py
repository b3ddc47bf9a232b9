"""Groups of failures: what fails, since when, how often, and what is new since the last deploy."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, QueryDict

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import task_history
from console.actions.task_history import FailureTrend
from console.models import Mark
from console.pages.frame.page import ConsolePage, Errors, declare_page, render_page
from console.pages.task_history.links import RetryLinks, build_id_url, build_search_url
from workers.task_history.failures import LIMIT
from workers.task_history.models import FailureGroup

MAX_NAMED = 3  # queues and workers of a group


@dataclass(frozen=True, kw_only=True)
class CountedName:
    """A queue or worker, and its failures."""

    name: str
    failures: int


@dataclass(frozen=True, kw_only=True)
class TrendBar:
    """An hour of a trend: where its bar begins and how high it is, as shares of the drawing in percent."""

    x: str
    y: str
    height: str


@dataclass(frozen=True, kw_only=True)
class ShownFailureGroup:
    """A group of failures with its links."""

    group: FailureGroup
    deploy: Mark | None
    last_day: int
    bars: Sequence[TrendBar]
    queues: Sequence[CountedName]
    more_queues: int
    workers: Sequence[CountedName]
    more_workers: int
    tasks_url: str
    last_task_url: str
    retry_url: str


@dataclass(frozen=True, kw_only=True)
class FailuresPage(ConsolePage):
    """Groups of failures, the last seen first; most: that a page has."""

    TEMPLATE, NAME = "task_history/failures.html", "task-history"

    plants: Sequence[str]
    groups: list[ShownFailureGroup]
    total: int
    new: int
    deploy: Mark | None  # the last one of the plant; of all plants if none is chosen
    only_new: bool
    last_hour: int
    last_day: int
    most: int
    filters: QueryDict
    errors: Errors


@declare_page("plant.view")
def failures_page(request: HttpRequest) -> HttpResponse:
    """Show the groups of `?plant=…&name=…`; `new=1`: only those that are new since the last deploy."""
    asked, errors, trends = request.GET, dict[str, list[str]](), list[FailureTrend]()
    plant, only_new = asked.get("plant", "").strip(), asked.get("new") == "1"
    try:
        trends = task_history.list_failure_trends(actor_of(request), plant, asked.get("name", "").strip())
    except BadInput as error:
        errors = {error.field: [error.message]}
    links = RetryLinks(actor_of(request))
    new = [trend for trend in trends if trend.deploy is not None]
    page = FailuresPage(
        plants=task_history.list_plants(),
        groups=[_build_group(trend, links) for trend in (new if only_new else trends)],
        total=len(trends),
        new=len(new),
        deploy=task_history.find_last_deploy(plant),
        only_new=only_new,
        last_hour=sum(trend.per_hour[-1] for trend in trends),
        last_day=sum(sum(trend.per_hour) for trend in trends),
        most=LIMIT,
        filters=asked,
        errors=errors,
    )
    return render_page(request, page, "frame")


def _build_group(trend: FailureTrend, links: RetryLinks) -> ShownFailureGroup:
    group = trend.group
    query = f"failure:{group.fingerprint}"
    queues, more_queues = _list_most(group.queues)
    workers, more_workers = _list_most(group.workers)
    return ShownFailureGroup(
        group=group,
        deploy=trend.deploy,
        last_day=sum(trend.per_hour),
        bars=_build_bars(trend.per_hour),
        queues=queues,
        more_queues=more_queues,
        workers=workers,
        more_workers=more_workers,
        tasks_url=build_search_url(group.plant, query),
        retry_url=links.build_url(group.plant, query),
        last_task_url=build_id_url(group.plant, group.last_task) if group.last_task else "",
    )


def _list_most(counts: dict[str, int]) -> tuple[list[CountedName], int]:
    """Return the most affected, and how many more there are."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [CountedName(name=name, failures=count) for name, count in ranked[:MAX_NAMED]], len(ranked[MAX_NAMED:])


def _build_bars(per_hour: Sequence[int]) -> list[TrendBar]:
    """Return the bars of the hours with failures, on a drawing of 100 by 100."""
    most = max(per_hour, default=0)
    width = 100 / max(1, len(per_hour))
    bars = []
    for hour, count in enumerate(per_hour):
        if count:
            height = max(8.0, 100 * count / most)
            bars.append(TrendBar(x=f"{hour * width:.2f}", y=f"{100 - height:.1f}", height=f"{height:.1f}"))
    return bars
