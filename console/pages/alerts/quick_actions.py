"""Immediate actions on an open alert: buttons that only need a reason, and related pages."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.urls import reverse

from common.parsing import parse_digits
from console.display.subject_pages import find_subject_page
from workers.alerts.lifecycle.models import Alert
from workers.documents.snapshot import Snapshot
from workers.models import Loop

MINUTES = 30  # of a hold or a pause
SUBJECTS = ("queue", "node", "host")
FAILING = ("failed", "stalled")
OF_PROCESSES = ("workers_missing", "observer_silent", "loops_stopped", "loop_silent", "host_overloaded")


@dataclass(frozen=True)
class QuickAction:
    """A button that posts its name and value with the reason of its form. may: the permission it needs."""

    words: str
    url: str
    name: str
    value: str
    may: str


@dataclass(frozen=True)
class RelatedPage:
    """A page with more details or actions. may: the permission that opens it."""

    words: str
    url: str
    may: str = "plant.view"


def find_loop(alert: Alert) -> Loop | None:
    """Return the loop that the alert is about."""
    return Loop.objects.filter(name=alert.labels["loop"]).first() if "loop" in alert.labels else None


def list_quick_actions(alert: Alert, loop: Loop | None, snapshot: Snapshot) -> list[QuickAction]:
    """Return the actions for the alert's condition and subject that are not done already.

    Return none if the alert is resolved.
    """
    return [] if alert.resolved_at is not None else list(_iterate_quick_actions(alert, loop, snapshot))


def _iterate_quick_actions(alert: Alert, loop: Loop | None, snapshot: Snapshot) -> Iterator[QuickAction]:
    labels = alert.labels
    if "pipeline" in labels:
        yield from _iterate_restart_actions(snapshot)
    if alert.condition == "workers_missing":
        yield from _let_work(snapshot)
    if alert.condition == "override_ending" and parse_digits(labels.get("override", "")) is not None:
        url = reverse("override-end", args=[int(labels["override"])])
        yield QuickAction("End override", url, "end", "now", "override.end")
    elif loop is not None:
        yield from _hold(loop, snapshot)
    elif labels.get("queue") in snapshot.queues:
        # Excess arrivals are stopped where they enter; wrong handling is stopped at the handler.
        part = "consumption" if alert.condition == "dead_letters" else "intake"
        yield from _pause(labels["queue"], part, snapshot)
    elif alert.condition == "node_toobusy" and labels.get("node") in snapshot.nodes:
        yield QuickAction("Relieve busy nodes", reverse("rebalance"), "goal", "below-busy", "plan.propose")


def _pause(queue: str, part: str, snapshot: Snapshot) -> Iterator[QuickAction]:
    if part not in {pause.part for pause in snapshot.queues[queue].pauses}:
        url = reverse("queue-pause", args=[queue])
        yield QuickAction(f"Pause {part} for {MINUTES} min", url, "part", part, "queue.pause")


def _let_work(snapshot: Snapshot) -> Iterator[QuickAction]:
    for name, host in sorted(snapshot.hosts.items()):
        if host.role == "jobs" and host.draining is not None:
            url = reverse("override-end", args=[host.draining.override])
            yield QuickAction(f"Return {name} to service", url, "end", "now", "override.end")


def _iterate_restart_actions(snapshot: Snapshot) -> Iterator[QuickAction]:
    rows = snapshot.pipeline.applications
    failing = [name for name, row in rows.items() if row.state in FAILING]
    for name in sorted(failing):
        url = reverse("pipeline-order", args=[name])
        yield QuickAction(f"Restart {name}", url, "order", "restart", "pipeline.steer")


def _hold(loop: Loop, snapshot: Snapshot) -> Iterator[QuickAction]:
    # An override of its mode may be in force, which the snapshot contains.
    mode = snapshot.loops[loop.name].mode if loop.name in snapshot.loops else loop.mode
    if mode != Loop.Mode.HOLD:
        url = reverse("loop-mode", args=[loop.pk])
        yield QuickAction(f"Hold loop for {MINUTES} min", url, "mode", Loop.Mode.HOLD, "loop.mode")


def list_related_pages(alert: Alert, loop: Loop | None) -> list[RelatedPage]:
    """Return pages with more actions on the alert."""
    return list(_iterate_related_pages(alert, loop))


def _iterate_related_pages(alert: Alert, loop: Loop | None) -> Iterator[RelatedPage]:
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
    if alert.condition == "override_ending":
        yield RelatedPage("Overrides", reverse("overrides"))
