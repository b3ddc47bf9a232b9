"""The palette: every page, subject, plan, alert, and action by name, for users (Ctrl-K, Actions) and programs.

It contains only what the actor may do. An action links to the page where it is done, which asks for details such as a
reason and an expiry. What the open incidents suggest comes first.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import F
from django.urls import reverse
from django.utils import timezone

from console.accounts.access import Actor
from console.actions import offset_resets
from console.actions.loops import list_scope_queues
from console.help import contents
from console.incidents.taken_actions import review_actions
from console.navigation import MORE_PAGES, get_page_permission, on_rail
from controllers.framework.reason import format_count
from controllers.parallelism.joint_law import LAW as JOINT
from queues.models import Node, Queue
from workers.alerts.lifecycle.models import Alert
from workers.documents.snapshot import Snapshot
from workers.documents.states import build_action_key
from workers.models import Loop, Plan, Task
from workers.plants.foreign import adapters
from workers.plants.models import RegisteredPlant
from workers.retries.models import RetryPlan
from workers.steering.scope import Scope, list_active_loops

MAX_TEXT = 100
TASK_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # of Celery, unless the app chooses its own
MAX_FOUND = 20
MAX_RECENT = 200  # plans and alerts
SUBJECTS = ("node", "queue", "loop", "application", "worker host", "plant", "task")
KINDS = ("suggestion", "page", "action", "alert", "plan", *SUBJECTS, "help")


@dataclass(frozen=True)
class PaletteEntry:
    """One entry. words: more search words; about: the text next to its label.

    icon: of static/icons/sprite.svg; "": that of its kind. narrow: the text that lists what it can be done to, instead
    of its address. incident: the number of the incident that suggests it.
    """

    kind: str
    label: str
    url: str
    about: str = ""
    words: str = ""
    icon: str = ""
    narrow: str = ""
    incident: int | None = None

    @property
    def group(self) -> str:
        """Return the heading that it is listed under."""
        if self.incident is not None:
            return f"Suggested: incident {self.incident}"
        return "Jobs" if self.kind == "action" else "Go to"

    def rank(self, tokens: Sequence[str]) -> tuple[int, ...] | None:
        """Return how well the entry matches, the best smallest; None if a token does not match."""
        label = self.label.lower()
        text = f"{label} {self.kind} {self.words.lower()}"
        parts = _split_words(text)
        if _split_words(label) == list(tokens):
            return -1, KINDS.index(self.kind), len(label)
        ranks = []
        for token in tokens:
            if label.startswith(token):
                ranks.append(0)
            elif token in parts:
                ranks.append(1)
            elif any(part.startswith(token) for part in parts):
                ranks.append(2)
            elif token in text:
                ranks.append(3)
            else:
                return None
        return sum(ranks), KINDS.index(self.kind), len(label)


@dataclass(frozen=True)
class PaletteResults:
    """The best matches first. total: number of all matches."""

    entries: list[PaletteEntry]
    total: int


def search(actor: Actor, snapshot: Snapshot | None, text: str) -> PaletteResults:
    """Return what matches all words of the text, group by group, the group of the best match first.

    Without a text, return the jobs, what waits for a person, and the pages. Suggestions always come first. The id of a
    task is searched in the task history.
    """
    tokens = _split_words(text.lower())
    if not tokens:
        waiting = [
            *_iterate_alerts(only_open=True),
            *_iterate_plans(only_open=True),
            *_iterate_retry_plans(only_open=True),
        ][: MAX_FOUND // 2]
        first = [*_iterate_suggestions(actor, snapshot), *_iterate_jobs(actor, snapshot), *waiting]
        return PaletteResults([*first, *_iterate_pages(actor)], len(first))
    if TASK_ID.fullmatch(text.strip().lower()) and actor.may("plant.view"):
        url = f"{reverse('task-history')}?{urlencode({'query': f'id:{text.strip().lower()}'})}"
        return PaletteResults([PaletteEntry("page", f"Find task {text.strip()}", url, "task history")], 1)
    ranked = [(entry.rank(tokens), entry) for entry in list_entries(actor, snapshot)]
    hits = [(rank, entry) for rank, entry in ranked if rank is not None]
    hits.sort(key=lambda pair: (pair[1].incident is None, pair[0], pair[1].label))
    best = [entry for _, entry in hits[:MAX_FOUND]]
    groups = list(dict.fromkeys(entry.group for entry in best))
    return PaletteResults(sorted(best, key=lambda entry: groups.index(entry.group)), len(hits))


def _split_words(text: str) -> list[str]:
    """Return the words of a text; names consist of several."""
    return text.translate(str.maketrans("/_@:", "    ")).split()


def list_entries(actor: Actor, snapshot: Snapshot | None) -> Iterator[PaletteEntry]:
    """Return every destination and action that this actor may use."""
    yield from _iterate_suggestions(actor, snapshot)
    yield from _iterate_pages(actor)
    if not actor.may("plant.view"):
        return
    yield from _iterate_alerts()
    yield from _iterate_plans()
    yield from _iterate_retry_plans()
    nodes = list(Node.objects.order_by("name").values_list("name", flat=True))
    queues = list(Queue.objects.order_by("name").values_list("name", flat=True))
    loops = list(list_active_loops().order_by("name"))
    tasks = list(Task.objects.order_by("name").values_list("name", flat=True))
    hosts = {name: row.role for name, row in snapshot.hosts.items()} if snapshot else {}
    yield from (PaletteEntry("node", name, reverse("node", args=[name])) for name in nodes)
    yield from (PaletteEntry("queue", name, reverse("queue", args=[name])) for name in queues)
    yield from (PaletteEntry("task", name, reverse("task", args=[name])) for name in tasks)
    for loop in loops:
        yield PaletteEntry("loop", _format_loop_name(loop.name), reverse("loop", args=[loop.pk]), words=loop.name)
    for name, role in hosts.items():
        yield PaletteEntry("worker host", name, reverse("worker-host", args=[name]), f"role {role}")
    if snapshot is not None:
        for name in snapshot.pipeline.applications:
            yield PaletteEntry("application", name, reverse("pipeline-application", args=[name]), "pipeline")
        for name in snapshot.plants:
            yield PaletteEntry("plant", name, reverse("plant", args=[name]))
    yield from (job for job in _iterate_jobs(actor, snapshot) if not job.narrow)
    of_subjects = _iterate_subject_actions(nodes, queues, loops, hosts, tasks)
    actions = (*PLANT_ACTIONS, *of_subjects, *_iterate_attached_plant_actions())
    for permission, label, url, words, about in actions:
        if actor.may_somewhere(permission) and actor.can_access_queues(about):
            yield PaletteEntry("action", label, url if url.startswith("/") else _build_url(url), words=words)
    for page in contents.load_pages().values():
        yield PaletteEntry("help", page.title, reverse("help") + page.address)


def _iterate_pages(actor: Actor) -> Iterator[PaletteEntry]:
    for name, label, _ in on_rail():
        if actor.may_somewhere(get_page_permission(name)):
            yield PaletteEntry("page", label, reverse(name))
    for name, label, action, _ in MORE_PAGES:
        if actor.may_somewhere(action):
            yield PaletteEntry("page", label, reverse(name))


def _iterate_alerts(only_open: bool = False) -> Iterator[PaletteEntry]:
    """Return open alerts first, then the latest resolved ones."""
    rows = Alert.objects.exclude(fired_at=None)
    rows = rows.filter(resolved_at=None) if only_open else rows
    for row in rows.order_by(F("resolved_at").desc(nulls_first=True), "-pk")[:MAX_RECENT]:
        state = "open" if row.resolved_at is None else "resolved"
        url = reverse("alert", args=[row.pk])
        yield PaletteEntry("alert", row.title, url, f"alert {row.pk}, {row.severity}, {state}", str(row.pk))


def _iterate_plans(only_open: bool = False) -> Iterator[PaletteEntry]:
    rows = Plan.objects.order_by("-pk")
    rows = rows.filter(state=Plan.State.PROPOSED) if only_open else rows
    for row in rows[:MAX_RECENT]:
        url = reverse("plan", args=[row.pk])
        yield PaletteEntry("plan", f"Plan {row.pk}: {row.title}", url, row.state)


def _iterate_retry_plans(only_open: bool = False) -> Iterator[PaletteEntry]:
    """Return retry plans; only_open: those that wait for a person."""
    rows = RetryPlan.objects.order_by("-pk").defer("items")
    rows = rows.filter(state__in=(RetryPlan.State.PROPOSED, RetryPlan.State.PAUSED)) if only_open else rows
    for row in rows[:MAX_RECENT]:
        label = f"Retry plan {row.pk}: {format_count(row.total, 'task')} of {row.plant}"
        yield PaletteEntry("plan", label, reverse("retry-plan", args=[row.pk]), row.state, row.query)


@dataclass(frozen=True)
class ListedJob:
    """One of the main jobs of an operator, as the palette lists it.

    destination: the name of a page, and a place on it. narrow: the start of the names of its actions on single
    subjects. whole: whether it is about the whole plant.
    """

    permission: str
    label: str
    about: str
    icon: str
    destination: str
    narrow: str = ""
    words: str = ""
    whole: bool = False


JOBS = (
    ListedJob(
        "override.set", "Override a value…", "parameter, threshold, or mode", "override", "manual-changes#new-title"
    ),
    ListedJob("loop.mode", "Hold a loop…", "", "hold", "loops", "hold loop"),
    ListedJob("queue.pause", "Pause a queue…", "intake or consumption", "pause", "queues", "pause queue"),
    ListedJob("queue.circuit", "Set a circuit…", "of a queue's destination", "hold", "queues", "set circuit"),
    ListedJob("node.use", "Drain a node…", "", "drain", "nodes", "drain node", whole=True),
    ListedJob(
        "plan.propose", "Rebalance now…", "proposes a plan", "plans", "nodes", words="balance points", whole=True
    ),
    ListedJob("plan.approve", "Approve a plan…", "", "check", "plans", words="reject stop roll back"),
    ListedJob("alert.acknowledge", "Acknowledge an alert…", "", "alerts", "alerts", "acknowledge"),
    ListedJob("dead_letters.requeue", "Retry dead letters…", "", "undo", "dead-letters", words="requeue discard"),
    ListedJob("retry.propose", "Retry failed tasks…", "proposes a plan", "undo", "retries", words="celery", whole=True),
    ListedJob("ladder.cap", "Cap a remedy ladder…", "never shed, or only throttle", "cap", "queues", "cap ladder"),
    ListedJob(
        "pipeline.steer", "Set tasks of an operator…", "", "pipeline", "pipeline", words="parallelism", whole=True
    ),
    ListedJob("silence.set", "Silence alerts…", "", "mute", "silences#new-title", words="mute"),
    ListedJob("window.set", "Plan a window…", "maintenance or freeze", "calendar", "windows#new-title", words="plan"),
    ListedJob(
        "mark.add", "Mark the timeline…", "deployment or note", "timeline", "timeline#mark-title", words="deploy note"
    ),
)

# Required permission, label, destination, more words, and the queues it is about (None: the whole plant;
# empty: those that are chosen there).
PossibleAction = tuple[str, str, str, str, Collection[str] | None]
# Their destinations are the name of a page, and a place on it.
PLANT_ACTIONS: tuple[PossibleAction, ...] = (
    ("alert_rule.change", "Change an alert rule", "alert-rules", "threshold", ()),
    ("receiver.change", "Add an alert receiver", "receivers", "email webhook", ()),
    ("retry.approve", "Approve a retry plan", "retries", "reject continue", None),
    ("override.end", "End a manual change", "manual-changes", "override extend", ()),
    ("link.make", "Share a snapshot", "timeline#share-title", "link chat", ()),
    ("lab.run", "Run an experiment", "lab", "simulate compare", ()),
    ("plant.register", "Register a plant", "plants", "flink kubernetes", ()),
    ("settings.change", "Change plant settings", "plant-settings", "approvals quota", ()),
    ("queue.define", "Create a queue", "queue-new", "new make", ()),
    ("process.restart", "Restart a process", "processes#restart-title", "kill log", ()),
    ("user.manage", "Add a user", "users", "user role", ()),
    ("account.change", "Change my password", "settings#password-title", "account", ()),
    ("token.mint", "Create an API token", "settings#tokens-title", "secret", ()),
)


def _iterate_jobs(actor: Actor, snapshot: Snapshot | None) -> Iterator[PaletteEntry]:
    counts = _count_waiting(snapshot)
    for job in JOBS:
        if actor.may_somewhere(job.permission) and actor.can_access_queues(None if job.whole else ()):
            about = counts.get(job.permission, job.about)
            url = _build_url(job.destination)
            yield PaletteEntry("action", job.label, url, about, job.words, job.icon, job.narrow)


def _count_waiting(snapshot: Snapshot | None) -> dict[str, str]:
    """Return how much there is to do, in words, by permission."""
    if snapshot is None:
        return {}
    plans = sum(plan.state == Plan.State.PROPOSED for plan in snapshot.plans)
    alerts = sum(alert.quiet is None for alert in snapshot.alerts)
    return {
        "plan.approve": f"{plans} waiting" if plans else "none waiting",
        "alert.acknowledge": f"{alerts} open" if alerts else "none open",
        "loop.mode": f"{len(snapshot.loops)} loops",
        "dead_letters.requeue": f"{snapshot.totals.dead_letters or 0} stored",
    }


def _iterate_suggestions(actor: Actor, snapshot: Snapshot | None) -> Iterator[PaletteEntry]:
    """Return what the open incidents suggest, the worst incident and its best action first."""
    if snapshot is None or not actor.may("plant.view"):
        return
    for finding in snapshot.health.findings:
        if finding.incident is None:
            continue
        for action in review_actions(finding.actions, snapshot, finding.since, timezone.now()).offered:
            if actor.may_somewhere(action.action):
                key = build_action_key(action.action, action.subject, action.value)
                url = f"{reverse('alert', args=[finding.incident])}#action-{key}"
                effect = action.effect.partition(". ")[0].rstrip(".")
                yield PaletteEntry("suggestion", action.words, url, effect, action.subject, incident=finding.incident)


def _build_url(destination: str) -> str:
    name, _, place = destination.partition("#")
    return f"{reverse(name)}#{place}" if place else reverse(name)


def _iterate_subject_actions(
    nodes: Sequence[str], queues: Sequence[str], loops: Sequence[Loop], hosts: Collection[str], tasks: Sequence[str]
) -> Iterator[PossibleAction]:
    for name in queues:
        url = reverse("queue", args=[name])
        waiting, definition = (reverse(page, args=[name]) for page in ("queue-waiting", "queue-definition"))
        yield "queue.pause", f"Pause queue {name}", f"{url}#pause", "stop intake consumption resume", [name]
        yield "queue.circuit", f"Set circuit of {name}", f"{url}#destination", "breaker open closed retry", [name]
        yield "queue.peek", f"View waiting events of {name}", waiting, "peek", [name]
        yield "plan.propose", f"Move points of {name}", f"{url}#hand-title", "weights plan", [name]
        yield ("ladder.cap", f"Cap ladder of {name}", f"{url}#ladder", "remedy limit never shed throttle", [name])
        yield "queue.define", f"Change queue {name}", definition, "handler edit", [name]
        letters = f"{reverse('dead-letters')}?{urlencode({'queue': name})}"
        yield "dead_letters.requeue", f"Retry dead letters of {name}", letters, "requeue discard", [name]
    for name in nodes:
        url = reverse("node", args=[name])
        yield "node.use", f"Drain node {name}", f"{url}#use-title", "cordon take back", None
        yield "node.thresholds", f"Change thresholds of node {name}", f"{url}#thresholds-title", "busy", None
    for name in hosts:
        yield ("host.drain", f"Drain worker host {name}", reverse("worker-host", args=[name]), "take back", None)
    for loop in loops:
        url, name, about = reverse("loop", args=[loop.pk]), _format_loop_name(loop.name), list_scope_queues(Scope(loop))
        yield "loop.mode", f"Hold loop {name}", f"{url}#loop-mode", f"mode manual advise auto {loop.name}", about
        yield "override.set", f"Override values of {name}", f"{url}#law-title", f"parameter {loop.name}", about
        if loop.law == JOINT.name:
            yield "override.set", f"Set tasks of {name}", f"{url}#by-hand", f"operator {loop.name}", about
    for alert in Alert.objects.filter(state=Alert.State.FIRING, under=None):
        url, silence = reverse("alert", args=[alert.pk]), f"{reverse('silences')}?alert={alert.pk}"
        label = f"alert {alert.pk}: {alert.title}"
        yield "alert.acknowledge", f"Acknowledge {label}", f"{url}#do-now", "snooze escalate", ()
        yield "silence.set", f"Silence {label}", silence, "mute", ()
    for plan in Plan.objects.filter(state=Plan.State.PROPOSED).order_by("-pk")[:MAX_RECENT]:
        yield "plan.approve", f"Approve plan {plan.pk}: {plan.title}", reverse("plan", args=[plan.pk]), "reject", None
    for name in tasks:
        yield "task.run", f"Run batch job {name}", f"{reverse('task', args=[name])}#run-title", "start task", ()


def _iterate_attached_plant_actions() -> Iterator[PossibleAction]:
    for row in RegisteredPlant.objects.order_by("name"):
        kind, name = adapters.list_kinds().get(row.kind), row.name
        if kind is None:
            continue
        if kind.starts_tasks:
            start = f"{reverse('plant', args=[name])}#start-task-title"
            yield "plant.start_task", f"Start a task of {name}", start, "run celery", None
        if kind.open_messages is not None:
            messages = reverse("plant-messages", args=[name])
            yield "messages.move", f"View messages of {name}", messages, "move requeue purge delete queue", None
        if kind.revokes_tasks:
            yield "plant.scale", f"Revoke tasks of {name}", reverse("plant-revoke", args=[name]), "cancel group", None
        if row.kind == offset_resets.KIND:
            yield "plant.scale", f"Reset offsets of {name}", reverse("plant-offsets", args=[name]), "kafka replay", None


def _format_loop_name(name: str) -> str:
    """Return a loop's name as pages show it."""
    return name.replace("_", " ").replace("/", " ")
