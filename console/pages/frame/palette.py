"""Search for destinations and actions by name: pages, subjects, plans, alerts, actions, and help.

Users (Ctrl-K) and programs use the same list. It contains only what the actor may do. An action links to the page where
it is done, which asks for details such as a reason and an expiry.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.db.models import F
from django.urls import reverse

from console.accounts.access import Actor
from console.actions.loops import list_scope_queues
from console.help import contents
from console.pages.frame.frame import get_page_permission, on_rail
from queues.models import Node, Queue
from workers.alerts.lifecycle.models import Alert
from workers.documents.snapshot import Snapshot
from workers.models import Loop, Plan, Task
from workers.steering.scope import Scope, list_active_loops

MAX_TEXT = 100
MAX_FOUND = 20
MAX_RECENT = 200  # plans and alerts
SUBJECTS = ("node", "queue", "loop", "application", "worker host", "plant", "task")
KINDS = ("page", "action", "alert", "plan", *SUBJECTS, "help")

# Pages that are not on the rail: name of the address, label, required permission.
MORE_PAGES = (
    ("silences", "Silences", "plant.view"),
    ("alert-rules", "Alert rules", "plant.view"),
    ("receivers", "Receivers", "plant.view"),
    ("alert-review", "Alert review", "plant.view"),
    ("plants", "Plants", "plant.view"),
    ("plant-settings", "Plant settings", "plant.view"),
    ("users", "Users and roles", "user.manage"),
    ("second-factor", "Second factor", "account.change"),
)


@dataclass(frozen=True)
class PaletteEntry:
    """One entry. words: more search words; about: the text next to its label."""

    kind: str
    label: str
    url: str
    about: str = ""
    words: str = ""

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
    """Return what matches all words of the text; without a text the pages, and what waits for a person."""
    tokens = _split_words(text.lower())
    if not tokens:
        waiting = [*_iterate_alerts(only_open=True), *_iterate_plans(only_open=True)]
        first = [*waiting[: MAX_FOUND // 2], *_iterate_pages(actor)]
        return PaletteResults(first[:MAX_FOUND], len(first))
    ranked = [(entry.rank(tokens), entry) for entry in list_entries(actor, snapshot)]
    hits = [(rank, entry) for rank, entry in ranked if rank is not None]
    hits.sort(key=lambda pair: (pair[0], pair[1].label))
    return PaletteResults([entry for _, entry in hits[:MAX_FOUND]], len(hits))


def _split_words(text: str) -> list[str]:
    """Return the words of a text; names consist of several."""
    return text.translate(str.maketrans("/_@:", "    ")).split()


def list_entries(actor: Actor, snapshot: Snapshot | None) -> Iterator[PaletteEntry]:
    """Return every destination and action that this actor may use."""
    yield from _iterate_pages(actor)
    if not actor.may("plant.view"):
        return
    yield from _iterate_alerts()
    yield from _iterate_plans()
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
    yield from _iterate_apps_and_plants(snapshot)
    yield from _iterate_actions(actor, nodes, queues, loops, hosts, tasks)
    for page in contents.load_pages().values():
        yield PaletteEntry("help", page.title, reverse("help") + page.address)


def _iterate_pages(actor: Actor) -> Iterator[PaletteEntry]:
    for name, label, _ in on_rail():
        if actor.may_somewhere(get_page_permission(name)):
            yield PaletteEntry("page", label, reverse(name))
    for name, label, action in MORE_PAGES:
        if actor.may_somewhere(action):
            yield PaletteEntry("page", label, reverse(name))


def _iterate_apps_and_plants(snapshot: Snapshot | None) -> Iterator[PaletteEntry]:
    if snapshot is None:
        return
    for name in snapshot.pipeline.applications:
        yield PaletteEntry("application", name, reverse("pipeline-application", args=[name]), "pipeline")
    for name in snapshot.plants:
        yield PaletteEntry("plant", name, reverse("plant", args=[name]))


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


def _iterate_actions(
    actor: Actor,
    nodes: Sequence[str],
    queues: Sequence[str],
    loops: Sequence[Loop],
    hosts: Iterable[str],
    tasks: Sequence[str],
) -> Iterator[PaletteEntry]:
    for permission, label, url, words, about in _iterate_possible_actions(nodes, queues, loops, hosts, tasks):
        if actor.may_somewhere(permission) and actor.can_access_queues(about):
            yield PaletteEntry("action", label, url, words=words)


# Required permission, label, destination, more words, and the queues it is about (None: the whole plant;
# empty: those that are chosen there).
Possible = tuple[str, str, str, str, Collection[str] | None]


def _iterate_possible_actions(
    nodes: Sequence[str], queues: Sequence[str], loops: Sequence[Loop], hosts: Iterable[str], tasks: Sequence[str]
) -> Iterator[Possible]:
    yield from ((*plant_entry, ()) for plant_entry in _list_plant_entries())
    yield "plan.propose", "Balance all nodes", reverse("queues"), "rebalance points", None
    for name in queues:
        url = reverse("queue", args=[name])
        waiting, definition = (reverse(page, args=[name]) for page in ("queue-waiting", "queue-definition"))
        yield "queue.pause", f"Pause queue {name}", f"{url}#pause", "stop intake consumption resume", [name]
        yield "queue.peek", f"View waiting events of {name}", waiting, "peek", [name]
        yield "plan.propose", f"Move points of {name}", f"{url}#hand-title", "weights plan", [name]
        yield ("ladder.cap", f"Limit the remedy ladder of {name}", f"{url}#ladder", "never shed throttle", [name])
        yield "queue.define", f"Change queue {name}", definition, "handler edit", [name]
    for name in nodes:
        url = reverse("node", args=[name])
        yield "node.use", f"Drain or cordon node {name}", f"{url}#use-title", "take back", None
        yield "node.thresholds", f"Change thresholds of node {name}", f"{url}#thresholds-title", "busy", None
    for name in hosts:
        yield ("host.drain", f"Drain worker host {name}", reverse("worker-host", args=[name]), "take back", None)
    for loop in loops:
        url, words = reverse("loop", args=[loop.pk]), f"mode manual advise auto {loop.name}"
        yield ("loop.mode", f"Hold loop {_format_loop_name(loop.name)}", url, words, list_scope_queues(Scope(loop)))
    for name in tasks:
        yield "task.run", f"Run task {name}", f"{reverse('task', args=[name])}#run-title", "start", ()


def _list_plant_entries() -> Iterator[tuple[str, str, str, str]]:
    yield "silence.set", "Silence alerts", f"{reverse('silences')}#new-title", "mute"
    yield "alert.acknowledge", "Acknowledge an alert", reverse("alerts"), "snooze escalate"
    yield "alert_rule.change", "Change an alert rule", reverse("alert-rules"), "threshold"
    yield "receiver.change", "Add an alert receiver", reverse("receivers"), "email webhook"
    yield "plan.approve", "Approve a plan", reverse("plans"), "reject stop roll back"
    yield "override.set", "Bulk override", f"{reverse('overrides')}#new-title", "parameter guard"
    yield "override.end", "End an override", reverse("overrides"), "extend"
    yield "mark.add", "Add a mark to the timeline", f"{reverse('timeline')}#mark-title", "deploy note"
    yield "link.make", "Share a snapshot", f"{reverse('timeline')}#share-title", "link chat picture"
    yield "dead_letters.requeue", "Requeue dead letters", reverse("dead-letters"), "requeue discard"
    yield "lab.run", "Run an experiment", reverse("lab"), "simulate compare"
    yield "plant.register", "Register a plant", reverse("plants"), "flink heron"
    yield "settings.change", "Change plant settings", reverse("plant-settings"), "approvals quota"
    yield "queue.define", "Create a queue", reverse("queue-new"), "new make"
    yield "process.restart", "Restart a process", f"{reverse('processes')}#restart-title", "kill log"
    yield "user.manage", "Add a user", reverse("users"), "user role"
    yield "account.change", "Change my password", f"{reverse('settings')}#password-title", "account"
    yield "token.mint", "Create an API token", f"{reverse('settings')}#tokens-title", "secret"


def _format_loop_name(name: str) -> str:
    """Return a loop's name as pages show it."""
    return name.replace("_", " ").replace("/", " ")
