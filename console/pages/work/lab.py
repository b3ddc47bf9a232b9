"""The lab: experiments are created, run, read, compared, and applied to the plant."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from console.accounts.access import actor_of
from console.actions.lab import experiments as lab_steering
from console.actions.lab.experiment_documents import (
    DescribedExperiment,
    ResultsTable,
    build_results_table,
    describe_experiment,
    experiment_for,
    list_changed_settings,
    list_readable_experiments,
    list_series_names,
)
from console.actions.lab.experiments import PlantEquivalent, list_applicable_settings
from console.connections.control_server import build_job_context
from console.display.override_words import describe_overrides
from console.input.form_values import parse_expiry, parse_row_id
from console.pages.frame.frame import snapshot_of
from console.pages.frame.page import (
    ActionResult,
    ConsolePage,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    render_page,
    report_overrides,
)
from console.pages.work.lab_form import LabForm, build_lab_form, read_experiment
from controllers.framework.reason import format_count
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.figures.catalog import FIGURES
from workers.batch import runs
from workers.lab.models import Experiment
from workers.models import Loop

PER_PAGE = 20
MAX_COMPARED = 4


@dataclass(frozen=True)
class AppliedValue:
    """A parameter: its value in the lab, and in force (None if loops differ).

    chosen: it isn't in force, and isn't just the default of the scenario.
    """

    name: str
    value: object
    in_force: object
    chosen: bool


@dataclass(frozen=True)
class AppliedLaw:
    """A law of the lab that the plant may take: its parameters next to those in force on its loops."""

    law: str
    of: PlantEquivalent
    loops: Sequence[Loop]
    rows: list[AppliedValue]


@dataclass(frozen=True)
class DifferingSetting:
    """A setting that differs between experiments: its values in their order."""

    name: str
    values: list[Any]


@dataclass(frozen=True, kw_only=True)
class LabPage(LabForm, FormPage):
    """The form of an experiment, and all experiments."""

    TEMPLATE, NAME = "work/lab.html", "lab"

    listed: list[DescribedExperiment]
    page_obj: Page[Experiment]
    query: str


@dataclass(frozen=True, kw_only=True)
class ExperimentPage(LabForm, FormPage):
    """One experiment, and the form to run it again with changes."""

    TEMPLATE, NAME = "work/experiment.html", "lab"

    experiment: DescribedExperiment
    table: ResultsTable
    series: Sequence[str]
    is_open: bool
    applied: list[AppliedLaw]


@dataclass(frozen=True, kw_only=True)
class ComparePage(ConsolePage):
    """Several experiments next to each other."""

    TEMPLATE, NAME = "work/compare.html", "lab"

    compared: list[DescribedExperiment]
    differing: list[DifferingSetting]
    table: ResultsTable  # over all of them
    series: Sequence[str]
    most: int
    too_many: bool


@declare_page("plant.view")
def lab_page(request: HttpRequest) -> HttpResponse:
    """Show the form, and the list of experiments."""
    submitted = get_rejected_form(request).submitted
    asked = (submitted or request.GET).get("scenario", "")
    actor = actor_of(request)
    scenario = SCENARIOS.get(asked) or next(iter(SCENARIOS.values()))
    page_obj = Paginator(list_readable_experiments(actor).order_by("-pk"), PER_PAGE).get_page(request.GET.get("page"))
    page = LabPage(
        **vars(build_lab_form(actor, scenario, submitted)),
        listed=[describe_experiment(listed_experiment) for listed_experiment in page_obj.object_list],
        page_obj=page_obj,
        query=f"scenario={scenario.name}" if asked else "",
    )
    return render_page(request, page, "frame")


@declare_page("plant.view")
def experiment_page(request: HttpRequest, experiment_id: int) -> HttpResponse:
    actor = actor_of(request)
    shown_experiment = experiment_for(actor, "plant.view", experiment_id)
    if shown_experiment.figure in FIGURES:
        return redirect(f"{reverse('figure', args=[shown_experiment.figure])}?experiment={experiment_id}")
    page = ExperimentPage(
        **vars(
            build_lab_form(
                actor, SCENARIOS.get(shown_experiment.scenario), get_rejected_form(request).submitted, shown_experiment
            )
        ),
        experiment=describe_experiment(shown_experiment),
        table=build_results_table([shown_experiment]),
        series=list_series_names(settings.WEIR_DATA, [shown_experiment]),
        is_open=shown_experiment.run is not None and shown_experiment.run.state in runs.OPEN,
        applied=_build_applied(shown_experiment),
    )
    return render_page(request, page, "frame")


@declare_page("plant.view")
def compare(request: HttpRequest) -> HttpResponse:
    """Compare two or more experiments, by `id` in the URL."""
    ids = [known for text in request.GET.getlist("id") if (known := parse_row_id(text)) is not None]
    chosen = list_readable_experiments(actor_of(request)).filter(pk__in=ids[:MAX_COMPARED])
    compared_experiments = sorted(chosen, key=lambda experiment: ids.index(experiment.pk))
    page = ComparePage(
        compared=[describe_experiment(compared_experiment) for compared_experiment in compared_experiments],
        differing=_list_differing(compared_experiments),
        table=build_results_table(compared_experiments),
        series=list_series_names(settings.WEIR_DATA, compared_experiments),
        most=MAX_COMPARED,
        too_many=len(ids) > MAX_COMPARED,
    )
    return render_page(request, page, "frame")


@declare_action("lab.run", lab_page)
def begin(request: HttpRequest) -> ActionResult:
    """Start an experiment and open it.

    Posted: scenario, law (repeated), set-NAME, seed, title, trace (a known file, "experiment-" with its number, or
    "upload" with file), column.
    """
    made = lab_steering.begin(actor_of(request), read_experiment(request), build_job_context())
    return _open_experiment(made, f"Experiment {made.pk} started with {format_count(len(made.laws), 'law')}.")


@declare_action("lab.run", experiment_page)
def cancel(request: HttpRequest, experiment_id: int) -> ActionResult:
    """Cancel an experiment. Nothing is posted."""
    chosen_experiment = experiment_for(actor_of(request), "lab.run", experiment_id)
    lab_steering.cancel(actor_of(request), chosen_experiment, timezone.now())
    return _open_experiment(
        chosen_experiment, f"Experiment {chosen_experiment.pk} was canceled; finished simulations are kept."
    )


@declare_action("override.set", experiment_page)
def apply(request: HttpRequest, experiment_id: int) -> ActionResult:
    """Apply a law. Posted: law (of the lab), loop (a number, or all), name (repeated), reason, expiry."""
    chosen_experiment = experiment_for(actor_of(request), "override.set", experiment_id)
    posted = request.POST
    made = lab_steering.override(
        actor_of(request),
        chosen_experiment,
        posted.get("law", ""),
        posted.get("loop", ""),
        posted.getlist("name"),
        reason=posted.get("reason", ""),
        now=timezone.now(),
        expiry=parse_expiry(posted),
    )
    return report_overrides(describe_overrides(made), made, "experiment", chosen_experiment.pk)


@declare_action("plan.propose", experiment_page)
def propose(request: HttpRequest, experiment_id: int) -> ActionResult:
    """Propose a law and open the plan. Posted: law (of the lab)."""
    chosen_experiment = experiment_for(actor_of(request), "plan.propose", experiment_id)
    law = request.POST.get("law", "")
    made = lab_steering.plan(actor_of(request), chosen_experiment, law, snapshot_of(request), timezone.now())
    url = reverse("plan", args=[made.pk])
    return ActionResult(f"Plan {made.pk} waits for approval.", url, {"plan": made.pk, "go": url})


def _open_experiment(made: Experiment, message: str) -> ActionResult:
    url = reverse("experiment", args=[made.pk])
    return ActionResult(message, url, {"experiment": made.pk, "go": url})


def _build_applied(found: Experiment) -> list[AppliedLaw]:
    now, shown = timezone.now(), []
    incidental = found.settings.keys() - list_changed_settings(found).keys()
    for law, law_settings in list_applicable_settings(found).items():
        loops = lab_steering.list_law_loops(law_settings)
        held = [lab_steering.list_active_overrides(loop, now) for loop in loops]
        rows = []
        for name, value in law_settings.values.items():
            # The value in force; None if loops differ.
            values = [held_value.get(name) for held_value in held]
            is_now = values[0] if values and all(value == values[0] for value in values) else None
            rows.append(AppliedValue(name, value, is_now, is_now != value and name not in incidental))
        shown.append(AppliedLaw(law, law_settings, loops, rows))
    return shown


def _list_differing(found: list[Experiment]) -> list[DifferingSetting]:
    """Return the settings, including seed and trace, in which experiments differ."""
    columns = [
        {
            **compared_experiment.settings,
            "seed": compared_experiment.seed,
            "trace": (compared_experiment.trace or {}).get("name", "scenario arrivals"),
        }
        for compared_experiment in found
    ]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [DifferingSetting(name, [column.get(name) for column in columns]) for name in names]
    return [row for row in rows if any(value != row.values[0] for value in row.values)]
