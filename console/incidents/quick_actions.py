"""Buttons that end the cause of an incident, or its impact. Each one states its effect and posts a small form.

`SuggestedAction` (of a finding) names what to do: the permission, the subject, and a value. `BUILDERS` has a function
for each permission that makes the button. Alerts without a finding get the actions of their condition.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from common.parsing import parse_digits
from console.accounts.access import ACTIONS, Actor
from console.actions.queues.definitions import find_version_before
from console.connections import supervisor
from console.connections.supervisor import NoSupervisor, ProcessRow
from console.display.states import find_subject_page
from console.incidents.prediction import PredictedRow, predict_pause
from console.incidents.taken_actions import TakenAction, review_actions
from controllers.concurrency.law import LAW as CONCURRENCY
from controllers.framework.reason import format_count, format_number
from queues.models import Queue
from workers.alerts.lifecycle.models import Alert
from workers.documents.hosts import parse_role
from workers.documents.snapshot import Snapshot
from workers.documents.states import SubjectFinding, SuggestedAction, build_action_key
from workers.models import Loop
from workers.snapshot import suggestions

MINUTES = 30  # the end that a form suggests
MAX_REASON = 160  # of a suggested reason
SUBJECTS = ("queue", "node", "host")
FAILING = ("failed", "stalled")
OF_PROCESSES = ("workers_missing", "observer_silent", "loops_stopped", "loop_silent", "host_overloaded")
# These actions end the cause; all others contain its impact.
FIXES = frozenset({"process.restart", "queue.define", "pipeline.steer", "pipeline.declare", "dead_letters.requeue"})


class ExpiryChoice(NamedTuple):
    """An end that a form offers."""

    minutes: int
    words: str


EXPIRY_CHOICES = (
    ExpiryChoice(15, "15 min"),
    ExpiryChoice(MINUTES, "30 min"),
    ExpiryChoice(60, "1 h"),
    ExpiryChoice(240, "4 h"),
)


@dataclass(frozen=True, kw_only=True)
class QuickAction:
    """A button, and the form that it opens.

    may: the permission that it needs; fields: of its form; effect: what it changes, in sentences; warning: the harm
    that it may cause, shown after the effect; ends: the ends that its form offers; reason: suggested; predicted:
    figures at a time (Unix time) and a minute later; a link opens a page instead; subject: "kind/name".
    """

    words: str
    url: str
    may: str
    fields: Mapping[str, str] = field(default_factory=dict)
    effect: str = ""
    warning: str = ""
    ends: Sequence[ExpiryChoice] = ()
    minutes: int = MINUTES  # the end that is selected
    is_link: bool = False
    subject: str = ""
    value: str = ""
    reason: str = ""
    predicted: Sequence[PredictedRow] = ()
    predicted_at: float | None = None

    @property
    def key(self) -> str:
        """Return its ID on a page."""
        return build_action_key(self.may, self.subject, self.value)

    @property
    def fixes(self) -> bool:
        """Return whether it ends the cause, not only its impact."""
        return self.may in FIXES


@dataclass(frozen=True)
class RelatedPage:
    """A page with more details or actions. may: the permission that opens it."""

    words: str
    url: str
    may: str = "plant.view"


def build_quick_action(
    suggested: SuggestedAction, snapshot: Snapshot, reason: str = "", affected: Sequence[str] = ()
) -> QuickAction | None:
    """Return the button of a suggested action; None if it is done already, or its subject is gone.

    affected: the subjects for which the effect is predicted.
    """
    kind, _, name = suggested.subject.partition("/")
    if suggested.action not in BUILDERS:
        return None
    parts = BUILDERS[suggested.action](kind, name, suggested.value, snapshot)
    if parts is None:
        return None
    queues = [subject.removeprefix("queue/") for subject in affected if subject.startswith("queue/")]
    return QuickAction(
        words=suggested.words,
        url=parts.url,
        may=suggested.action,
        fields=parts.fields,
        effect=suggested.effect,
        warning=parts.warning,
        ends=EXPIRY_CHOICES if parts.lasts else (),
        is_link=parts.is_link,
        subject=suggested.subject,
        value=suggested.value,
        reason=reason,
        predicted=predict_pause(name, suggested.value, queues, snapshot) if suggested.action == "queue.pause" else (),
        predicted_at=snapshot.at,
    )


@dataclass(frozen=True, kw_only=True)
class OfferedActions:
    """The buttons that the actor may use, the best first, and the actions that people took, the newest first."""

    actions: list[QuickAction] = field(default_factory=list)
    taken: list[TakenAction] = field(default_factory=list)

    @property
    def settles_at(self) -> float | None:
        """Return when the next action is offered first if the problem remains."""
        return min((action.settles_at for action in self.taken if action.is_settling), default=None)


def list_finding_actions(finding: SubjectFinding, snapshot: Snapshot, actor: Actor) -> OfferedActions:
    """Return the buttons of a finding."""
    reason = suggest_reason(finding.incident, finding.sentence)
    return _offer(finding.actions, finding, snapshot, actor, reason)


def list_quick_actions(alert: Alert, loop: Loop | None, snapshot: Snapshot, actor: Actor) -> OfferedActions:
    """Return the actions for an open alert that are not done already.

    They are those of its incident's finding and of its processes, or else those of its condition.
    """
    if alert.resolved_at is not None:
        return OfferedActions()
    incident = alert.under_id or alert.pk
    finding = find_incident_finding(incident, snapshot)
    reason = suggest_reason(incident, finding.sentence if finding else alert.title)
    processes = [_suggest_restart(row, snapshot) for row in _list_processes_behind(alert)]
    suggested = [*(finding.actions if finding else ()), *processes]
    if _build_all(suggested, snapshot, actor, reason):
        return _offer(suggested, finding, snapshot, actor, reason)
    return _offer(list(_suggest_for_condition(alert, loop, snapshot)), finding, snapshot, actor, reason)


def _offer(
    suggested: Sequence[SuggestedAction], finding: SubjectFinding | None, snapshot: Snapshot, actor: Actor, reason: str
) -> OfferedActions:
    reviewed = review_actions(suggested, snapshot, finding.since if finding else None, timezone.now())
    affected = finding.affected if finding else ()
    return OfferedActions(actions=_build_all(reviewed.offered, snapshot, actor, reason, affected), taken=reviewed.taken)


def find_incident_finding(incident: int, snapshot: Snapshot) -> SubjectFinding | None:
    """Return the finding of an incident."""
    return next((finding for finding in snapshot.health.findings if finding.incident == incident), None)


def suggest_reason(incident: int | None, sentence: str) -> str:
    """Return the reason that a form suggests: "Incident 18: slow holds both slots"."""
    said = sentence.strip().rstrip(".")
    said = said if len(said) <= MAX_REASON else f"{said[: MAX_REASON - 1].rstrip()}…"
    return f"Incident {incident}: {said}" if incident else said


def _build_all(
    suggested: Iterable[SuggestedAction], snapshot: Snapshot, actor: Actor, reason: str, affected: Sequence[str] = ()
) -> list[QuickAction]:
    made = (build_quick_action(action, snapshot, reason, affected) for action in suggested)
    usable = {(action.url, *action.fields.items()): action for action in made if action and actor.may(action.may)}
    return list(usable.values())


# --- the buttons, by permission -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Parts:
    url: str
    fields: Mapping[str, str] = field(default_factory=dict)
    lasts: bool = False
    warning: str = ""
    is_link: bool = False


def _build_pause(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts | None:
    row = snapshot.queues.get(name)
    if row is None or value in {pause.part for pause in row.pauses}:
        return None
    return _Parts(url=reverse("queue-pause", args=[name]), fields={"part": value}, lasts=True)


def _build_end(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts | None:
    """Build the end of an override, of a pause (queue/NAME with its part), or of a drain (host/NAME)."""
    if kind == "queue":
        pauses = snapshot.queues[name].pauses if name in snapshot.queues else []
        ids = [pause.override for pause in pauses if pause.part == value]
    elif kind == "host":
        draining = snapshot.hosts[name].draining if name in snapshot.hosts else None
        ids = [draining.override] if draining else []
    else:
        ids = [int(name)] if parse_digits(name) is not None else []
    if not ids:
        return None
    warning = next((change.warning for change in snapshot.hands if change.key == f"override/{ids[0]}"), "")
    return _Parts(url=reverse("override-end", args=[ids[0]]), fields={"end": "now"}, warning=warning)


def _build_mode(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts | None:
    """Build a mode of a loop, or the number of worker slots of a host (a number), which its loop holds in manual."""
    loop = Loop.objects.filter(name=f"{CONCURRENCY.name}/{name}" if kind == "host" else name).first()
    if loop is None:
        return None
    mode = snapshot.loops[loop.name].mode if loop.name in snapshot.loops else loop.mode
    if value in Loop.Mode.values:
        lasts = value in Loop.HANDED_OVER
        done = mode == value
        fields = {"mode": value}
    else:
        host = snapshot.hosts.get(name)
        lasts, done = True, host is not None and str(host.slots) == value
        fields = {"mode": Loop.Mode.MANUAL.value, "value": value}
    return None if done else _Parts(url=reverse("loop-mode", args=[loop.pk]), fields=fields, lasts=lasts)


def _build_host_drain(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts | None:
    host = snapshot.hosts.get(name)
    if host is None or host.drained:
        return None
    return _Parts(url=reverse("worker-host-drain", args=[name]), lasts=True)


def _build_restart(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts | None:
    return _Parts(url=reverse("process-restart"), fields={"process": name}) if supervisor.is_there() else None


def _build_roll_back(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts | None:
    queue = Queue.objects.filter(name=name).first()
    entry = find_version_before(queue) if queue else None
    return _Parts(url=reverse("queue-roll-back", args=[name]), fields={"entry": str(entry.pk)}) if entry else None


def _build_order(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts | None:
    if name not in snapshot.pipeline.applications:
        return None
    return _Parts(url=reverse("pipeline-order", args=[name]), fields={"order": value or "restart"})


def _build_declaration(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts:
    """Build the link to a version of an application's declaration (a number, or shipped), which can be restored."""
    query = f"?{urlencode({'version': value})}" if value else ""
    return _Parts(url=f"{reverse('pipeline-declaration', args=[name])}{query}", is_link=True)


def _build_plan(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts:
    return _Parts(url=reverse("rebalance"), fields={"goal": value or "below-busy"})


def _build_node_use(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts | None:
    node, use = snapshot.nodes.get(name), value or "drain"
    if node is None or (use == "drain" and node.drained):
        return None
    return _Parts(url=reverse("nodes-use"), fields={"node": name, "use": use})


def _build_requeue(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts:
    return _Parts(url=f"{reverse('dead-letters')}?{urlencode({'queue': name})}", is_link=True)


def _build_approval(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts | None:
    return _Parts(url=reverse("plan", args=[int(name)]), is_link=True) if parse_digits(name) is not None else None


def _build_cancel(kind: str, name: str, value: str, snapshot: Snapshot) -> _Parts | None:
    return _Parts(url=reverse("run-cancel", args=[int(name)])) if name in snapshot.runs else None


BUILDERS: Mapping[str, Callable[[str, str, str, Snapshot], _Parts | None]] = {
    "queue.pause": _build_pause,
    "override.end": _build_end,
    "loop.mode": _build_mode,
    "host.drain": _build_host_drain,
    "process.restart": _build_restart,
    "queue.define": _build_roll_back,
    "pipeline.steer": _build_order,
    "pipeline.declare": _build_declaration,
    "plan.propose": _build_plan,
    "plan.approve": _build_approval,
    "node.use": _build_node_use,
    "dead_letters.requeue": _build_requeue,
    "task.cancel": _build_cancel,
}
assert BUILDERS.keys() <= ACTIONS.keys()


# --- processes ------------------------------------------------------------------------------------------------


def _suggest_restart(row: ProcessRow, snapshot: Snapshot) -> SuggestedAction:
    """Suggest the restart of a process. A suspended one ignores all signals but SIGKILL."""
    hosts = [host for host in snapshot.hosts.values() if row.name.startswith(f"worker-{host.role}")]
    slots = sum(host.slots for host in hosts)
    until = f" Its {format_count(slots, 'worker slot')} can't be used until then." if slots else ""
    if row.name in snapshot.nodes:
        until = " The node keeps its events, but nobody can read them until then."
    elif row.name.removeprefix("agent-") in snapshot.nodes:
        until = " The server of the node continues to run."
    if row.is_suspended:
        effect = f"The process {row.name} is suspended and ignores a normal stop. Weir kills and restarts it.{until}"
    elif row.pid is None:
        effect = f"The process {row.name} is {row.word}. It starts within seconds.{until}"
    else:
        effect = f"The process {row.name} finishes its current work and restarts within seconds.{until}"
    verb = "Start" if row.pid is None else "Restart"
    return SuggestedAction(
        action="process.restart", subject=f"process/{row.name}", words=f"{verb} {row.name}", effect=effect
    )


def list_restarts(labels: Mapping[str, str], snapshot: Snapshot, actor: Actor) -> OfferedActions:
    """Return the restarts of all processes of a node or a worker host, for its page."""
    if not actor.may("process.restart"):
        return OfferedActions()
    subjects = {f"{kind}/{name}" for kind, name in labels.items()}
    finding = next((row for row in snapshot.health.findings if row.subject in subjects), None)
    reason = suggest_reason(finding.incident, finding.sentence) if finding else ""
    suggested = [_suggest_restart(row, snapshot) for row in _list_named_processes(_list_process_names(labels))]
    return _offer(suggested, finding, snapshot, actor, reason)


def _list_processes_behind(alert: Alert) -> list[ProcessRow]:
    """Return the processes that an alert is about: the suspended or stopped ones, or else all of them."""
    named = _list_named_processes(_list_process_names(alert.labels) or PROCESSES.get(alert.condition, []))
    failed = [row for row in named if not row.is_well]
    return failed or [row for row in named if alert.condition in RESTARTED]


def _list_named_processes(names: Sequence[str]) -> list[ProcessRow]:
    """Return the processes with these names; `pipeline` stands for its replicas, too."""
    rows: Collection[ProcessRow] = ()
    if names and supervisor.is_there():
        with suppress(NoSupervisor):
            rows = supervisor.list_processes()
    return [
        row
        for name in names
        for row in rows
        if row.name == name or (name == "pipeline" and row.name.startswith("pipeline-"))
    ]


RESTARTED = (
    "observer_silent",
    "loops_stopped",
    "workers_missing",
    "node_lost",
)  # although the supervisor sees no fault


def _list_process_names(labels: Mapping[str, str]) -> list[str]:
    """Return the names of the processes of a subject, the most likely cause of an alert first."""
    node, host = labels.get("node", ""), labels.get("host", "")
    if node:
        return [f"agent-{node}", node]
    if host:
        return [f"worker-{parse_role(host)}"]
    return ["pipeline"] if "pipeline" in labels else []


PROCESSES = {
    "observer_silent": ["observer"],
    "loops_stopped": ["beat", "worker-control"],
    "loop_silent": ["worker-control", "beat"],
    "workers_missing": ["worker-jobs"],
    "queue_wait": ["worker-jobs", "pipeline"],
    "queue_latency": ["worker-jobs", "pipeline"],
    "pipeline_down": ["pipeline"],
    "pipeline_stalled": ["pipeline"],
    "pipeline_lag": ["pipeline"],
    "producer_silent": ["telemetry"],
}


def find_process_fault(name: str, actor: Actor) -> tuple[str, QuickAction | None]:
    """Return the state of a process in a word, and its restart if the actor may do it; "" if nobody supervises it."""
    if not supervisor.is_there():
        return "", None
    try:
        row = supervisor.get_process(name)
    except (NoSupervisor, BadInput):
        return "", None
    state = "not responding" if row.is_well else row.word
    action = build_quick_action(_suggest_restart(row, Snapshot()), Snapshot(), f"The process {name} is {state}")
    return state, action if action and actor.may(action.may) else None


# --- alerts without a finding ---------------------------------------------------------------------------------


def _suggest_for_condition(alert: Alert, loop: Loop | None, snapshot: Snapshot) -> Iterator[SuggestedAction]:
    labels = alert.labels
    queue = labels.get("queue", "")
    if "pipeline" in labels:
        for name, row in sorted(snapshot.pipeline.applications.items()):
            if row.state in FAILING:
                yield suggestions.suggest_application_restart(snapshot, name)
    if alert.condition == "workers_missing":
        for name, host in sorted(snapshot.hosts.items()):
            if host.role == "jobs" and host.draining is not None:
                effect = f"Worker host {name} accepts work again at once."
                yield _suggest("override.end", f"host/{name}", f"Return {name} to service", effect)
    if alert.condition == "override_ending":
        effect = "The previous value applies again at once."
        yield _suggest("override.end", f"override/{labels.get('override', '')}", "End override", effect)
    elif loop is not None:
        value = snapshot.loops[loop.name].actuator if loop.name in snapshot.loops else None
        kept = "its last value" if value is None else f"its last value ({format_number(value)})"
        effect = f"The loop keeps {kept} and takes no action until the hold ends, even if the load changes."
        yield _suggest("loop.mode", f"loop/{loop.name}", "Hold loop", effect, Loop.Mode.HOLD.value)
    elif queue in snapshot.queues:
        # Excess arrivals are stopped where they enter, wrong handling at the handler.
        at_handler = alert.condition == "dead_letters" or snapshot.queues[queue].in_per_second == 0
        suggest = suggestions.suggest_pause if at_handler else suggestions.suggest_intake_pause
        yield from suggest(snapshot, queue)
    elif alert.condition == "node_toobusy" and labels.get("node") in snapshot.nodes:
        yield suggestions.suggest_relief(snapshot, labels["node"], None)


def _suggest(action: str, subject: str, words: str, effect: str, value: str = "") -> SuggestedAction:
    return SuggestedAction(action=action, subject=subject, words=words, effect=effect, value=value)


def find_loop(alert: Alert) -> Loop | None:
    """Return the loop that the alert is about."""
    return Loop.objects.filter(name=alert.labels["loop"]).first() if "loop" in alert.labels else None


def iterate_related_pages(alert: Alert, loop: Loop | None) -> Iterator[RelatedPage]:
    """Return pages with more actions on the alert."""
    labels = alert.labels
    if "pipeline" in labels:
        yield RelatedPage("Pipeline and log", f"{reverse('pipeline')}#pipeline-process")
    if alert.condition in OF_PROCESSES:
        yield RelatedPage("Processes and logs", reverse("processes"), "process.view")
    for kind in (subject for subject in SUBJECTS if subject in labels):
        yield RelatedPage(f"{kind.capitalize()} {labels[kind]}", find_subject_page(kind, labels[kind]))
    if loop is not None:
        yield RelatedPage("Loop", reverse("loop", args=[loop.pk]))
    if "plan" in labels and parse_digits(labels["plan"]) is not None:
        yield RelatedPage(f"Plan {labels['plan']}", reverse("plan", args=[int(labels["plan"])]))
    if "task" in labels:
        yield RelatedPage(f"Task {labels['task']}", reverse("task", args=[labels["task"]]))
    if alert.condition in ("failure_group_new", "task_failing"):
        url = f"{reverse('failures')}?{urlencode({'plant': labels['plant']})}"
        yield RelatedPage(f"Failures of {labels['plant']}", url)
    if alert.condition == "override_ending":
        yield RelatedPage("Manual changes", reverse("manual-changes"))
