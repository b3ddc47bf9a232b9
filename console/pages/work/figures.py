"""Tables and figures of the papers: a list, and a page for each with the paper's values next to Weir's."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from console.accounts.access import actor_of
from console.actions.lab import experiments as lab_steering
from console.actions.lab.figures import (
    MAX_SEEDS,
    DescribedFigure,
    describe_figure,
    find_experiment,
    get_figure,
    list_figures,
    want_figure,
)
from console.actions.lab.traces import list_traces
from console.connections.control_server import build_job_context
from console.input.form_values import parse_number, parse_row_id
from console.pages.frame.page import (
    ActionResult,
    ConsolePage,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    render_page,
)
from console.pages.work.lab_form import read_trace_choice
from controllers.framework.reason import format_count
from controllers.simulation.figures.figure import PAPERS, ComparedValue
from workers.batch import runs
from workers.lab.models import Experiment


@dataclass(frozen=True)
class PaperFigures:
    """A paper with its tables and figures."""

    reference: str
    figures: list[DescribedFigure]


@dataclass(frozen=True)
class FigureMetric:
    """A column of the table. reported: whether the paper has values of the metric."""

    name: str
    unit: str
    reported: bool


@dataclass(frozen=True)
class FigureValues:
    """A run: its law and case, and a value for each metric."""

    law: str
    case: str
    values: list[ComparedValue]


@dataclass(frozen=True, kw_only=True)
class FiguresPage(ConsolePage):
    """All tables and figures by paper."""

    TEMPLATE, NAME = "work/figures.html", "lab"

    papers: list[PaperFigures]


@dataclass(frozen=True, kw_only=True)
class FigurePage(FormPage):
    """A table or figure, with the form to run it. same: always None, because a run can't reuse earlier arrivals."""

    TEMPLATE, NAME = "work/figure.html", "lab"

    figure: DescribedFigure
    metrics: list[FigureMetric]
    rows: list[FigureValues]
    is_open: bool
    seeds: int | str
    seed: int | str
    most: int
    traces: Sequence[str]
    trace: str
    column: str
    same: Experiment | None = None


@declare_page("plant.view")
def figures_page(request: HttpRequest) -> HttpResponse:
    figures = list_figures(actor_of(request))
    papers = [
        PaperFigures(paper.reference, [figure for figure in figures if figure.paper == paper.reference])
        for paper in PAPERS
    ]
    return render_page(request, FiguresPage(papers=papers), "frame")


@declare_page("plant.view")
def figure_page(request: HttpRequest, figure: str) -> HttpResponse:
    """Show one table or figure with its newest experiment, or the one in the URL (`experiment`)."""
    declared, actor = get_figure(figure), actor_of(request)
    number = parse_row_id(request.GET.get("experiment", ""))
    experiment = find_experiment(actor, declared, number)
    described, typed = describe_figure(declared, experiment), get_rejected_form(request).submitted
    names = list(dict.fromkeys(value.metric for value in described.values))
    by_run: dict[str, list[ComparedValue]] = {}
    for value in described.values:
        by_run.setdefault(value.run, []).append(value)
    page = FigurePage(
        figure=described,
        metrics=[_build_metric(metric, described.values) for metric in names],
        rows=[FigureValues(run.law, run.case, by_run[name]) for name, run in declared.runs.items()],
        is_open=experiment is not None and experiment.run is not None and experiment.run.state in runs.OPEN,
        seeds=typed.get("seeds", declared.seeds),
        seed=typed.get("seed", experiment.seed if experiment else 1),
        most=MAX_SEEDS,
        traces=list_traces(settings.WEIR_DATA, actor),
        trace=typed.get("trace", ""),
        column=typed.get("column", ""),
    )
    return render_page(request, page, "frame")


@declare_action("lab.run", figure_page)
def run(request: HttpRequest, figure: str) -> ActionResult:
    """Run a table or figure. Posted: seeds, seed, trace (a known file, or "upload" with file), column."""
    declared, posted = get_figure(figure), request.POST
    seeds, seed = parse_number(posted.get("seeds", ""), "seeds"), parse_number(posted.get("seed", ""), "seed")
    want_figure(declared, seeds, seed)
    # Read last, because reading stores an uploaded file.
    wanted = want_figure(declared, seeds, seed, read_trace_choice(request))
    made = lab_steering.begin(actor_of(request), wanted, build_job_context())
    url = reverse("figure", args=[figure])
    said = f"{declared.number} started with {format_count(len(made.laws), 'run')} as experiment {made.pk}."
    return ActionResult(said, url, {"experiment": made.pk, "go": url})


def _build_metric(name: str, values: Sequence[ComparedValue]) -> FigureMetric:
    of_metric = [value for value in values if value.metric == name]
    return FigureMetric(name, of_metric[0].unit, any(value.is_reported for value in of_metric))
