"""Navigation: the pages on the rail, pages that declare themselves, and the search for pages and actions by name.

A declared page needs no list: a module in an area of `console.pages` has `PAGE = DeclaredPage(…)`. It gives
the page its address, its place on the rail and in the palette, and the minimum role that the permissions test checks.

Users (Ctrl-K) and programs use the same search. It contains only what the actor may do. An action links to the page
where it is done, which asks for details such as a reason and an expiry.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Literal, get_args

from django.db.models import F
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse

from console.accounts.access import Actor
from console.actions.loops import list_scope_queues
from console.help import contents
from controllers.framework.discovery import import_modules, import_subpackages
from queues.models import Node, Queue
from workers.alerts.lifecycle.models import Alert
from workers.documents.snapshot import Snapshot
from workers.models import Loop, Plan, Task
from workers.steering.scope import Scope, list_active_loops

Section = Literal["watch", "steer", "look", "keep"]
SECTIONS: tuple[Section, ...] = get_args(Section)  # sections of the rail, in order
# Declared pages are added to these.
RAIL: tuple[tuple[str, str, Section], ...] = (
    ("overview", "Overview", "watch"),
    ("nodes", "Nodes", "watch"),
    ("queues", "Queues", "watch"),
    ("dead-letters", "Dead letters", "watch"),
    ("workers", "Workers", "watch"),
    ("pipeline", "Pipeline", "watch"),
    ("alerts", "Alerts", "watch"),
    ("objectives", "Service levels", "watch"),
    ("loops", "Loops", "steer"),
    ("overrides", "Overrides", "steer"),
    ("plans", "Plans", "steer"),
    ("tasks", "Tasks", "steer"),
    ("ledger", "Ledger", "steer"),
    ("timeline", "Timeline", "look"),
    ("lab", "Lab", "look"),
    ("processes", "Processes", "keep"),
    ("audit", "Audit log", "keep"),
    ("settings", "Settings", "keep"),
    ("help", "Help", "keep"),
)
RAIL_ACTIONS = {"audit": "audit.view", "processes": "process.view"}


@dataclass(frozen=True)
class DeclaredPage:
    """A page that needs only its module, its template, and its test.

    name: the `NAME` of its context; addresses are made from it. address: starts with "/", without variable parts, as on
    the rail. view: made by `declare_page`; the rail shows it to users it admits. section: of the rail, at whose end it
    is placed. icon: of static/icons/sprite.svg. help: its page in Help, after /help/; "": the start page of Help.
    """

    name: str
    address: str
    view: Callable[..., HttpResponseBase]
    label: str
    section: Section
    icon: str = "search"
    help: str = ""

    @property
    def action(self) -> str:
        """Return the permission that is needed to see the page."""
        return str(vars(self.view)["action"])


@cache
def load_pages() -> dict[str, DeclaredPage]:
    """Return all declared pages by name.

    Imports every page, so call it when they can be imported. Raises ValueError if two pages have one name, or if a view
    requires no role.
    """
    pages_by_name: dict[str, DeclaredPage] = {}
    modules = (module for area in import_subpackages(import_module("console.pages")) for module in import_modules(area))
    for module in modules:
        page = getattr(module, "PAGE", None)
        if not isinstance(page, DeclaredPage):
            continue
        if page.name in pages_by_name:
            raise ValueError(f"two pages declare the name {page.name}")
        if "action" not in vars(page.view):
            raise ValueError(f"the view of the page {page.name} lacks @declare_page")
        pages_by_name[page.name] = page
    return dict(sorted(pages_by_name.items()))


def list_url_patterns() -> list[URLPattern]:
    """Return the URL patterns of all declared pages, for `console.urls`."""
    return [path(page.address, page.view, name=page.name) for page in load_pages().values()]


def help_of(name: str) -> str:
    """Return the address of a page's help, after /help/; "" for a page without a name."""
    page = load_pages().get(name)
    return page.help if page else f"operate/pages/{name}/" if name else ""


def on_rail() -> list[tuple[str, str, Section]]:
    """Return name, label, and section of each page on the rail, in order."""
    entries = [*RAIL, *((page.name, page.label, page.section) for page in load_pages().values())]
    return sorted(entries, key=lambda entry: SECTIONS.index(entry[2]))


def get_page_permission(name: str) -> str:
    """Return the permission that is needed to see a page on the rail."""
    page = load_pages().get(name)
    return page.action if page else RAIL_ACTIONS.get(name, "plant.view")


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
    if snapshot is not None:
        for name in snapshot.pipeline.applications:
            yield PaletteEntry("application", name, reverse("pipeline-application", args=[name]), "pipeline")
        for name in snapshot.plants:
            yield PaletteEntry("plant", name, reverse("plant", args=[name]))
    actions = (*PLANT_ACTIONS, *_iterate_subject_actions(nodes, queues, loops, hosts, tasks))
    for permission, label, url, words, about in actions:
        if actor.may_somewhere(permission) and actor.can_access_queues(about):
            yield PaletteEntry("action", label, url if url.startswith("/") else _build_url(url), words=words)
    for page in contents.load_pages().values():
        yield PaletteEntry("help", page.title, reverse("help") + page.address)


def _iterate_pages(actor: Actor) -> Iterator[PaletteEntry]:
    for name, label, _ in on_rail():
        if actor.may_somewhere(get_page_permission(name)):
            yield PaletteEntry("page", label, reverse(name))
    for name, label, action in MORE_PAGES:
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


# Required permission, label, destination, more words, and the queues it is about (None: the whole plant;
# empty: those that are chosen there).
PossibleAction = tuple[str, str, str, str, Collection[str] | None]
# Their destinations are the name of a page, and a place on it.
PLANT_ACTIONS: tuple[PossibleAction, ...] = (
    ("silence.set", "Silence alerts", "silences#new-title", "mute", ()),
    ("alert.acknowledge", "Acknowledge an alert", "alerts", "snooze escalate", ()),
    ("alert_rule.change", "Change an alert rule", "alert-rules", "threshold", ()),
    ("receiver.change", "Add an alert receiver", "receivers", "email webhook", ()),
    ("plan.approve", "Approve a plan", "plans", "reject stop roll back", ()),
    ("override.set", "Bulk override", "overrides#new-title", "parameter guard", ()),
    ("override.end", "End an override", "overrides", "extend", ()),
    ("mark.add", "Add a mark to the timeline", "timeline#mark-title", "deploy note", ()),
    ("link.make", "Share a snapshot", "timeline#share-title", "link chat", ()),
    ("dead_letters.requeue", "Requeue dead letters", "dead-letters", "requeue discard", ()),
    ("lab.run", "Run an experiment", "lab", "simulate compare", ()),
    ("plant.register", "Register a plant", "plants", "flink kubernetes", ()),
    ("settings.change", "Change plant settings", "plant-settings", "approvals quota", ()),
    ("queue.define", "Create a queue", "queue-new", "new make", ()),
    ("process.restart", "Restart a process", "processes#restart-title", "kill log", ()),
    ("user.manage", "Add a user", "users", "user role", ()),
    ("account.change", "Change my password", "settings#password-title", "account", ()),
    ("token.mint", "Create an API token", "settings#tokens-title", "secret", ()),
    ("plan.propose", "Balance all nodes", "queues", "rebalance points", None),
)


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


def _format_loop_name(name: str) -> str:
    """Return a loop's name as pages show it."""
    return name.replace("_", " ").replace("/", " ")
