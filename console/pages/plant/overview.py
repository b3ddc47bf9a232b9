"""The overview: the plant at a glance, with its worst problems first."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse

from console.accounts.access import actor_of
from console.display.states import RankedSubject, rank_subjects
from console.pages.frame.frame import get_snapshot, snapshot_of
from console.pages.frame.page import ConsolePage, declare_page, render_page
from console.pages.frame.past import past_of, time_shown
from console.pages.plant.hero import Hero, build_hero, find_limit
from console.pages.plant.law_summary import LoopActivity, summarize_activity
from console.pages.plant.plant_view import AttachedPlant, list_attached
from workers.documents.objectives import ObjectiveStatus
from workers.documents.parts import Parts, find_starting_parts

MAX_QUEUES, MAX_CHARTED = 8, 4
MAX_ATTACHED = 8
MAX_OBJECTIVES = 5


@dataclass(frozen=True, kw_only=True)
class OverviewPage(ConsolePage):
    """The plant at a glance."""

    TEMPLATE, NAME = "plant/overview.html", "overview"

    hero: Hero
    wait_limit: float | None  # s, of the alert rules
    latency_limit: float | None
    charted_queues: list[str]  # by name; the worst if there are too many
    activity: LoopActivity
    objectives: dict[str, ObjectiveStatus]  # the least budget first
    worst_queues: list[RankedSubject]  # for phones, which have no map
    starting: Parts  # every part by name, while one of them starts
    attached: list[AttachedPlant]  # the first of them; those with problems come first
    more_attached: int


@declare_page("plant.view")
def overview(request: HttpRequest) -> HttpResponse:
    """Show the headline, the figures, and what the loops did."""
    snapshot, attached = get_snapshot(request), list_attached(get_snapshot(request))
    queues = [row for row in rank_subjects(snapshot_of(request)) if row.kind == "queue"]
    page = OverviewPage(
        hero=build_hero(snapshot, actor_of(request), past_of(request) is not None),
        wait_limit=find_limit("queue_wait"),
        latency_limit=find_limit("queue_latency"),
        charted_queues=sorted(row.name for row in queues[:MAX_CHARTED]),
        activity=summarize_activity(time_shown(request)),
        objectives=dict(sorted(snapshot.objectives.items(), key=_get_left_share)[:MAX_OBJECTIVES]),
        worst_queues=queues[:MAX_QUEUES],
        starting=dict(sorted(snapshot.parts.items())) if find_starting_parts(snapshot.parts) else {},
        attached=attached[:MAX_ATTACHED],
        more_attached=max(0, len(attached) - MAX_ATTACHED),
    )
    return render_page(request, page, "flow")


def _get_left_share(row: tuple[str, ObjectiveStatus]) -> tuple[float, str]:
    share = row[1].window_left_share
    return 1.0 if share is None else share, row[0]
