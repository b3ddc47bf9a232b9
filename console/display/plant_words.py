"""The result of inspecting a plant's address, and the first report of an advising loop, in sentences.

For pages, the API, and `attach`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from common.stored_document import convert
from controllers.framework.reason import format_count, format_percent
from controllers.parallelism.advice_value import HOUR_SECONDS
from controllers.shedding.ladder import get_level_name
from workers.control.advice import MIN_SECONDS
from workers.documents.loops import AdviceEffect, FirstReportFigures
from workers.documents.plants import FoundPlant, PlantStatus
from workers.models import FirstReport, Loop, ModeProposal

MAX_NAMES = 12


def describe_discovered_plant(plant: FoundPlant) -> list[str]:
    """Return the description of a discovered plant.

    It says what was found, what could be controlled, what would only be observed, and what it would need.
    """
    settable = [part for part in plant.parts if part.fixed is None]
    fixed = [part for part in plant.parts if part.fixed is not None]
    ranges = []
    for part in settable:
        now = "tasks unknown" if part.tasks is None else f"now {format_count(part.tasks, 'task')}"
        limited = part.minimum is not None and part.maximum is not None
        ranges.append(
            f"{part.name} ({now}, {part.minimum:,} to {part.maximum:,})" if limited else f"{part.name} ({now})"
        )
    steer = f"Weir can set: {_format_names(ranges)}." if settable else ""
    nothing = "" if settable else "Weir can't currently set any values of this plant."
    seen = f"Weir would only observe: {_format_names([f'{part.name} ({part.fixed})' for part in fixed])}."
    every = [
        _end_sentence(plant.what),
        *map(_end_sentence, plant.said),
        *(f"Choices for {name}: {_format_names(values)}." for name, values in plant.choices.items() if values),
        steer,
        nothing,
        seen if fixed else "",
        *(f"Required: {_end_sentence(need)}" for need in plant.needs),
    ]
    return [sentence for sentence in every if sentence]


def _format_names(names: list[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _end_sentence(sentence: str) -> str:
    return sentence if sentence[-1:] in ".!?" else f"{sentence}."


INSTALL_GUARD = "Install the guard (weir guard {name}, or the plant's page)."


def describe_remaining(name: str, status: PlantStatus | None) -> str:
    """Return what stays if Weir vanishes, because no guard runs at the plant, as sentences; "" if nothing does."""
    if status is None or status.guard is None or (status.guard.alive and not status.guard.error):
        return ""
    items = [f"{value.item} ({value.value})" for value in status.set_values if value.stays and not value.is_harmless]
    install = INSTALL_GUARD.format(name=name)
    said = f"this stays: {_format_names(items)}" if items else "what you set here stays"
    return f"No guard is running at {name}. If Weir vanishes, {said}. {install}"


MINUTE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class ShownReport:
    """The first report as a page shows it.

    sentences: what happened, and what would have happened. assumed: assumptions of the estimate. figures: None if too
    little was measured.
    """

    since: datetime
    until: datetime
    sentences: Sequence[str]
    assumed: Sequence[str]
    figures: FirstReportFigures | None


def report_of(loop: int) -> ShownReport | None:
    """Return the report; None before there is one."""
    report = FirstReport.objects.filter(loop=loop).first()
    if report is None or report.since == report.until:
        return None
    figures = None if report.figures is None else convert(FirstReportFigures, report.figures)
    sentences = [
        f"Less than {MIN_SECONDS / MINUTE_SECONDS:.0f} minutes of the hour was measured, so there are no figures. "
        "The next hour will be reported instead."
    ]
    assumed = []
    if figures is not None:
        sentences = [_describe_task_hours(figures), _describe_waiting(figures)]
        pause = (
            f", each with a pause of {figures.pause_seconds:g} s that is not included" if figures.pause_seconds else ""
        )
        assumed = [
            f"Actual figures are measured over {figures.measured_seconds / MINUTE_SECONDS:.0f} minutes.",
            "Figures with the advice are estimates. They assume the same arrivals, the same task speed, and"
            " independent decisions.",
            f"The advice would have changed the number of tasks {format_count(figures.changes, 'time')}{pause}.",
        ]
    return ShownReport(since=report.since, until=report.until, sentences=sentences, assumed=assumed, figures=figures)


@dataclass(frozen=True, kw_only=True)
class ShownModeProposal:
    """The open proposal to set a loop to auto. until: the end of the evaluated day."""

    until: datetime
    sentences: Sequence[str]
    hash: str
    effect: AdviceEffect

    @property
    def short_hash(self) -> str:
        return self.hash[:8]


def find_mode_proposal(loop: Loop) -> ShownModeProposal | None:
    """Return the open proposal of a loop that still advises."""
    row = ModeProposal.objects.filter(loop=loop, state=ModeProposal.State.PROPOSED).first()
    if row is None or row.figures is None or loop.mode != Loop.Mode.ADVISE:
        return None
    effect = convert(AdviceEffect, row.figures)
    return ShownModeProposal(until=row.until, sentences=describe_advice(effect), hash=row.hash, effect=effect)


def describe_advice(effect: AdviceEffect) -> list[str]:
    """Describe what a day of advice would have changed, in sentences."""
    measured = f"In the {effect.measured_seconds / HOUR_SECONDS:.0f} h before"
    if effect.unit == "level":
        level = get_level_name(effect.most)
        return [
            f"{measured}, the ladder would have enabled remedies for {effect.advised_unit_hours:.2g} h, up to {level}.",
            "This estimate does not include the events that would have been kept or shed.",
        ]
    saved = effect.unit_hours - effect.advised_unit_hours
    cost = "" if effect.saved_cost is None else f" (cost: {abs(effect.saved_cost):.2f})"
    values = f"{effect.least}" if effect.least == effect.most else f"{effect.least} to {effect.most}"
    sentences = [
        f"The loop would use {values} {effect.unit}s.",
        f"{measured}, its advice would have {'saved' if saved >= 0 else 'used'} {abs(saved):.1f} "
        f"{'' if saved >= 0 else 'more '}{effect.unit}-hours{cost}, with {format_count(effect.changes, 'change')}.",
    ]
    was, advised = effect.waiting_event_seconds, effect.advised_waiting_event_seconds
    if was is None or advised is None or not effect.events:
        return [*sentences, "The effect on waiting is unknown, because this loop does not measure it."]
    one, other = _format_seconds(was / effect.events), _format_seconds(advised / effect.events)
    return [*sentences, f"Mean waiting time: {one} measured, {other} estimated with the advice."]


def _describe_task_hours(figures: FirstReportFigures) -> str:
    was, advised = figures.task_hours, figures.advised_task_hours
    change = advised - was
    share = f" ({format_percent(abs(change) / was)})" if was else ""
    said = f"Worker-hours: {was:.2f} used, {advised:.2f} with the advice"
    if round(change, 2) == 0:
        return f"{said}: no difference."
    return f"{said}: {abs(change):.2f} {'more' if change > 0 else 'less'}{share}."


def _describe_waiting(figures: FirstReportFigures) -> str:
    was, advised = figures.waiting_event_seconds, figures.advised_waiting_event_seconds
    if was is None or advised is None:
        return "Waiting: not measured by this loop."
    if not figures.events:
        return "Waiting: no arrivals."
    one, other = was / figures.events, advised / figures.events
    said = f"Mean waiting time: {_format_seconds(one)} measured, {_format_seconds(other)} estimated with the advice"
    if _format_seconds(one) == _format_seconds(other):
        return f"{said}: no difference."
    return f"{said}: {_format_seconds(abs(other - one))} {'more' if other > one else 'less'}."


def _format_seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"
