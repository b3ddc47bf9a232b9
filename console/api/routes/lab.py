"""The lab: scenarios, experiments started and read, their series, and results applied to the plant."""

from typing import Annotated, TypedDict

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from common.stored_document import Seconds, describe
from console.actions.lab import experiments as lab_steering
from console.actions.lab import figures
from console.actions.lab.experiment_documents import (
    DescribedExperiment,
    build_series_document,
    describe_experiment,
    experiment_for,
    list_readable_experiments,
)
from console.actions.lab.experiments import read_wanted
from console.actions.lab.figures import DescribedFigure
from console.actions.lab.traces import find_trace, list_traces
from console.api.request.answers import Json, Router, convert
from console.api.request.authentication import actor_for
from console.api.request.input import GivenTime, RequestBody, check_rows
from console.api.routes.control import KINDS
from console.api.routes.plans import plan_row
from console.connections.control_server import build_job_context, load_latest_snapshot
from console.input.form_values import Id
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.scenario import Scenario, get_metric
from workers.documents.plans import PlanDocument
from workers.steering.overrides import Expiry
from workers.twin.catalog import list_laws

router = Router(tags=["lab"])


class ScenarioSetting(TypedDict):
    """A setting of a scenario as declared."""

    name: str
    unit: str
    help: str
    default: Json
    minimum: float
    maximum: float
    kind: Annotated[str, describe(values=KINDS)]
    choices: list[str]


class ScenarioMetric(TypedDict):
    name: str
    unit: str
    better: Annotated[str, describe(values=("lower", "higher", "none"))]


class ScenarioRow(TypedDict):
    name: str
    about: str
    laws: list[str]
    settings: list[ScenarioSetting]
    metrics: list[ScenarioMetric]


class ScenarioList(TypedDict):
    scenarios: list[ScenarioRow]
    traces: Annotated[list[str], describe("Available trace files.")]


class ExperimentList(TypedDict):
    experiments: list[DescribedExperiment]


class ExperimentCurve(TypedDict):
    """A series as drawn. low, high: its confidence band; empty for a single seed."""

    seconds: list[Seconds]
    values: list[float | None]
    low: list[float | None]
    high: list[float | None]


class ExperimentSeries(TypedDict):
    experiment: int
    laws: Annotated[dict[str, dict[str, ExperimentCurve]], describe("Keyed by law, then by series.")]


class FigureList(TypedDict):
    figures: list[DescribedFigure]


class AppliedOverrides(TypedDict):
    overrides: list[int]


class NewExperiment(RequestBody):
    """A new experiment.

    Omitted `laws` are all laws. Omitted `settings` are the scenario's. `trace` is one of the known files.
    """

    scenario: str
    laws: list[str] = []
    settings: dict[str, int | float | str | bool] = {}
    seed: int = 1
    title: str = ""
    trace: str | None = None
    column: str = ""


class FigureRequest(RequestBody):
    """seeds: the number of seeds (default: declared by the figure). seed: the first seed."""

    seeds: int | None = None
    seed: int = 1
    trace: str | None = None
    column: str = ""


class AppliedParameters(RequestBody):
    """Parameters `names` of a law of the experiment, on a loop (its number, or "all")."""

    law: str
    names: list[str]
    reason: str
    loop: int | str = lab_steering.ALL
    minutes: float | None = None
    expires_at: GivenTime | None = None


class Proposal(RequestBody):
    """The law of the experiment whose goal the plan follows."""

    law: str


@router.get("/lab", summary="List scenarios (laws, settings, and metrics) and available traces")
def list_scenarios(request: HttpRequest) -> ScenarioList:
    actor = actor_for(request, "plant.view")
    scenarios = [_build_scenario_row(scenario) for scenario in SCENARIOS.values()]
    return {"scenarios": scenarios, "traces": list_traces(settings.WEIR_DATA, actor)}


@router.get("/lab/figures", summary="List tables and figures of the papers with their newest experiments")
def list_figures(request: HttpRequest) -> FigureList:
    return {"figures": figures.list_figures(actor_for(request, "plant.view"))}


@router.get("/lab/figures/{figure}", summary="Get a table or figure: the values of the paper, and those of Weir")
def get_figure_values(request: HttpRequest, figure: str, experiment: Id | None = None) -> DescribedFigure:
    actor, found = actor_for(request, "plant.view"), figures.get_figure(figure)
    return figures.describe_figure(found, figures.find_experiment(actor, found, experiment))


@router.post("/lab/figures/{figure}/run", summary="Run a table or figure as an experiment")
def run_figure(request: HttpRequest, figure: str, body: FigureRequest) -> DescribedExperiment:
    actor, found = actor_for(request, "lab.run"), figures.get_figure(figure)
    trace = None if body.trace is None else find_trace(settings.WEIR_DATA, body.trace, body.column, actor)
    wanted = figures.want_figure(found, found.seeds if body.seeds is None else body.seeds, body.seed, trace)
    return describe_experiment(lab_steering.begin(actor, wanted, build_job_context()))


@router.get("/experiments", summary="List experiments, newest first")
def list_experiments(request: HttpRequest, scenario: str = "", rows: int = 50) -> ExperimentList:
    actor = actor_for(request, "plant.view")
    check_rows(rows)
    chosen = (
        list_readable_experiments(actor).filter(scenario=scenario) if scenario else list_readable_experiments(actor)
    )
    return {"experiments": [describe_experiment(experiment) for experiment in chosen.order_by("-pk")[:rows]]}


@router.post("/experiments", summary="Start an experiment as a batch run with one chunk per law")
def begin_experiment(request: HttpRequest, body: NewExperiment) -> DescribedExperiment:
    actor = actor_for(request, "lab.run")
    trace = None if body.trace is None else find_trace(settings.WEIR_DATA, body.trace, body.column, actor)
    given = {name: int(value) if isinstance(value, bool) else value for name, value in body.settings.items()}
    wanted = read_wanted(body.scenario, body.laws, given, body.seed, body.title, trace)
    return describe_experiment(lab_steering.begin(actor, wanted, build_job_context()))


@router.get("/experiments/{experiment_id}", summary="Get an experiment and its results so far")
def get_experiment(request: HttpRequest, experiment_id: Id) -> DescribedExperiment:
    actor = actor_for(request, "plant.view")
    return describe_experiment(experiment_for(actor, "plant.view", experiment_id))


@router.get("/experiments/{experiment_id}/series", summary="Get the series of an experiment by law")
def get_experiment_series(request: HttpRequest, experiment_id: Id) -> ExperimentSeries:
    experiment = experiment_for(actor_for(request, "plant.view"), "plant.view", experiment_id)
    return {"experiment": experiment.pk, "laws": build_series_document(settings.WEIR_DATA, experiment)}


@router.post("/experiments/{experiment_id}/cancel", summary="Cancel an experiment; finished simulations are kept")
def cancel_experiment(request: HttpRequest, experiment_id: Id) -> DescribedExperiment:
    actor = actor_for(request, "lab.run")
    return describe_experiment(
        lab_steering.cancel(actor, experiment_for(actor, "lab.run", experiment_id), timezone.now())
    )


@router.post("/experiments/{experiment_id}/apply", summary="Apply a law's parameters as overrides")
def apply_experiment(request: HttpRequest, experiment_id: Id, body: AppliedParameters) -> AppliedOverrides:
    actor = actor_for(request, "override.set")
    made = lab_steering.override(
        actor,
        experiment_for(actor, "override.set", experiment_id),
        body.law,
        str(body.loop),
        body.names,
        reason=body.reason,
        now=timezone.now(),
        expiry=Expiry(body.minutes, body.expires_at),
    )
    return {"overrides": [override.pk for override in made]}


@router.post("/experiments/{experiment_id}/plan", summary="Propose a plan for the goal of a law")
def propose_experiment_plan(request: HttpRequest, experiment_id: Id, body: Proposal) -> PlanDocument:
    actor = actor_for(request, "plan.propose")
    experiment = experiment_for(actor, "plan.propose", experiment_id)
    return plan_row(lab_steering.plan(actor, experiment, body.law, load_latest_snapshot(), timezone.now()))


def _build_scenario_row(scenario: Scenario) -> ScenarioRow:
    names = ("name", "unit", "help", "default", "minimum", "maximum", "kind", "choices")
    settings_of = [{name: getattr(setting, name) for name in names} for setting in scenario.settings]
    return {
        "name": scenario.name,
        "about": scenario.about,
        "laws": list(list_laws(scenario)),
        "settings": [convert(ScenarioSetting, setting) for setting in settings_of],
        "metrics": [convert(ScenarioMetric, {"name": name, **vars(get_metric(name))}) for name in scenario.metrics],
    }
