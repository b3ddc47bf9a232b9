"""One task: its life, its arguments and error, its relatives, and what changed around its failure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse

from console.accounts.access import Actor, actor_of
from console.actions import task_history
from console.actions.task_history import UsualRunTime
from console.display.task_family import FamilyDrawing, draw_family
from console.incidents.surroundings import NearbyEvent, list_nearby_events
from console.pages.frame.page import ConsolePage, declare_page, render_page
from console.pages.task_history.links import (
    RetryLinks,
    build_revoke_url,
    build_search_url,
    build_start_url,
    build_task_url,
)
from workers.plants.registry import LOCAL
from workers.task_history.gaps import find_gap_of
from workers.task_history.models import FailureGroup, TaskGap
from workers.task_history.record import FAILED, REJECTED, RETRIED, REVOKED, TaskRecord
from workers.task_history.search import Family

ENDED_BADLY = (FAILED, RETRIED, REVOKED, REJECTED)


@dataclass(frozen=True, kw_only=True)
class LifeStep:
    """A step in the life of a task, and the time until the next one.

    words: of that time, such as "Waited"; weight: how much of the line it takes, at least 1.
    """

    label: str
    at: float | None
    seconds: float | None = None
    words: str = ""
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class RelatedTask:
    """A task around the shown one, and how it is related."""

    relation: str
    task: TaskRecord
    url: str


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """The run time of the task against the usual ones, on an axis that begins at 0; shares of its length."""

    usual: UsualRunTime
    share: float
    p50_share: float
    p95_share: float
    is_slow: bool
    times: float | None  # how many times the 50th percentile


@dataclass(frozen=True, kw_only=True)
class StoredTaskPage(ConsolePage):
    """A task with everything that is known of it.

    is_local: whether it is Weir's own. gap: the gap in which its end may have been missed. group: of its failure.
    """

    TEMPLATE, NAME = "task_history/task.html", "task-history"

    task: TaskRecord
    is_local: bool
    hides_arguments: bool
    is_altered: bool  # its arguments are redacted or shortened
    steps: list[LifeStep]
    run: ComparedRun | None
    gap: TaskGap | None
    group: FailureGroup | None
    group_url: str
    same_name_url: str
    drawing: FamilyDrawing | None
    relatives: list[RelatedTask]
    more_relatives_url: str
    nearby: Sequence[NearbyEvent]
    ended_badly: bool
    retry_url: str
    start_url: str
    revoke_url: str  # of the preview that revokes the unfinished tasks of its group


@declare_page("plant.view")
def stored_task_page(request: HttpRequest) -> HttpResponse:
    """Show the task of `?plant=…&id=…`; 404 if it is unknown."""
    actor, plant, task_id = actor_of(request), request.GET.get("plant", "") or LOCAL, request.GET.get("id", "")
    task = task_history.find_task(actor, plant, task_id) if task_id else None
    if task is None:
        raise Http404(f"No task {task_id[:80]} of {plant[:40]} is stored.")
    family = task_history.list_family(actor, task)
    ended_badly = task.state in ENDED_BADLY
    instant = datetime.fromtimestamp(task.at, UTC)
    page = StoredTaskPage(
        task=task,
        is_local=plant == LOCAL,
        hides_arguments=task_history.is_sealed(actor, task),
        is_altered=plant != LOCAL and not task.are_exact and bool(task.args or task.kwargs),
        steps=list_steps(task),
        run=_compare_run(task),
        gap=find_gap_of(task),
        group=FailureGroup.objects.filter(plant=plant, fingerprint=task.failure).first() if task.failure else None,
        group_url=build_search_url(plant, f"failure:{task.failure}"),
        same_name_url=build_search_url(plant, f'name:"{task.name}"') if '"' not in task.name else "",
        drawing=draw_family(task, family),
        relatives=list(_iterate_relatives(family)),
        more_relatives_url=build_search_url(plant, f'root:"{task.root}"') if task.root and '"' not in task.root else "",
        nearby=list_nearby_events(instant, actor, settings.WEIR_DATA) if ended_badly else (),
        ended_badly=ended_badly,
        retry_url=RetryLinks(actor).build_url(plant, "", {"id": task.id}) if ended_badly else "",
        start_url=build_start_url(actor, task),
        revoke_url=_build_group_revoke_url(actor, task, family),
    )
    return render_page(request, page, "frame")


def _build_group_revoke_url(actor: Actor, task: TaskRecord, family: Family) -> str:
    root = task.root or task.id
    has_others = root != task.id or bool(family.children)
    if not has_others or '"' in root:
        return ""
    return build_revoke_url(actor, task.plant, f'root:"{root}"')


def list_steps(task: TaskRecord) -> list[LifeStep]:
    """Return the known steps of the last attempt; those of earlier attempts are only counted."""
    known = [("Sent", task.sent, "In queue"), ("Received", task.received, "Waited")]
    known += [("Started", task.started, "Ran"), (task.state.capitalize(), task.ended, "")]
    heard = [(label, at, words) for label, at, words in known if at is not None]
    steps = list[LifeStep]()
    for place, (label, at, words) in enumerate(heard):
        following = heard[place + 1][1] if place + 1 < len(heard) else None
        seconds = None if following is None else max(0.0, following - at)
        if label == "Started" and seconds is not None and task.run_seconds is not None:
            seconds = task.run_seconds
        steps.append(LifeStep(label=label, at=at, seconds=seconds, words=words))
    if not task.is_finished and task.ended is None:
        steps.append(LifeStep(label="End not received yet", at=None))
    return _weigh_steps(steps)


def _weigh_steps(steps: Sequence[LifeStep]) -> list[LifeStep]:
    """Return the steps with their parts of the line: long ones are up to 4 times as long as short ones."""
    longest = max((step.seconds or 0.0 for step in steps), default=0.0)
    return [
        LifeStep(
            label=step.label,
            at=step.at,
            seconds=step.seconds,
            words=step.words,
            weight=round(1.0 + 3.0 * (step.seconds or 0.0) / longest, 2) if longest else 1.0,
        )
        for step in steps
    ]


def _compare_run(task: TaskRecord) -> ComparedRun | None:
    if task.run_seconds is None or not task.name:
        return None
    usual = task_history.compute_usual_run_time(task.plant, task.name)
    if usual is None:
        return None
    axis = max(task.run_seconds, usual.p95_seconds) * 1.05 or 1.0
    return ComparedRun(
        usual=usual,
        share=task.run_seconds / axis,
        p50_share=usual.p50_seconds / axis,
        p95_share=usual.p95_seconds / axis,
        is_slow=task.run_seconds > usual.p95_seconds,
        times=task.run_seconds / usual.p50_seconds if usual.p50_seconds else None,
    )


def _iterate_relatives(family: Family) -> Iterator[RelatedTask]:
    is_same = family.root is not None and family.parent is not None and family.root.id == family.parent.id
    single = [("Root", None if is_same else family.root), ("Parent", family.parent)]
    several = [*(("Child", child) for child in family.children), *(("Sibling", other) for other in family.siblings)]
    for relation, task in [*single, *several]:
        if task is not None:
            yield RelatedTask(relation=relation, task=task, url=build_task_url(task))
