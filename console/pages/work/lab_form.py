"""The form of an experiment: its values, and what was posted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from django.conf import settings
from django.http import HttpRequest, QueryDict

from common.errors import BadInput
from common.parameter import Parameter
from console.accounts.access import Actor, actor_of
from console.actions.lab.experiments import WantedExperiment, get_scenario, parse_setting, read_wanted
from console.actions.lab.traces import Trace, find_trace, list_traces, load_experiment_trace, save_upload
from console.input.form_values import parse_number
from console.input.row_id import parse_row_id
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.scenario import Scenario
from workers.lab.models import Experiment

SET = "set-"  # the fields of a scenario's settings
OWN = ""  # the choice of a trace: the scenario's own arrivals
UPLOAD = "upload"
SAME = "experiment-"  # and its number: the arrivals of that experiment again


@dataclass(frozen=True)
class LawChoice:
    """A law of the scenario, and whether it takes part."""

    name: str
    chosen: bool


@dataclass(frozen=True)
class LabSetting:
    """A setting of the scenario, with its value."""

    declared: Parameter
    value: Any


@dataclass(frozen=True, kw_only=True)
class LabForm:
    """The fields of a page with the form; the page's own context inherits them.

    scenario: None for an experiment whose scenario no longer exists; the form is then empty. same: the experiment whose
    arrivals may be used again.
    """

    scenarios: Mapping[str, Scenario]
    scenario: Scenario | None
    laws: Sequence[LawChoice] = ()
    rows: Sequence[LabSetting] = ()
    seed: int | str = 1
    title: str = ""
    column: str = ""
    trace: str = OWN
    same: Experiment | None = None
    traces: Sequence[str] = ()


def build_lab_form(
    actor: Actor, scenario: Scenario | None, submitted: QueryDict | None, experiment: Experiment | None = None
) -> LabForm:
    """Return a scenario's laws and settings, and the actor's traces.

    The settings are as typed, as of an experiment, or by default.
    """
    if scenario is None:
        return LabForm(scenarios=SCENARIOS, scenario=None)
    chosen, typed = _list_chosen_laws(scenario, submitted, experiment), submitted or QueryDict()
    same = _find_trace_experiment(actor, typed.get("trace", ""), experiment)
    return LabForm(
        scenarios=SCENARIOS,
        scenario=scenario,
        laws=[LawChoice(law, law in chosen) for law in scenario.laws],
        rows=[_build_setting(setting, submitted, experiment) for setting in scenario.settings],
        seed=typed.get("seed", experiment.seed if experiment else 1),
        title=typed.get("title", ""),
        column=typed.get("column", ""),
        trace=typed.get("trace", f"{SAME}{same.pk}" if same else OWN),
        same=same,
        traces=list_traces(settings.WEIR_DATA, actor),
    )


def _find_trace_experiment(actor: Actor, choice: str, experiment: Experiment | None) -> Experiment | None:
    """Return the experiment whose arrivals are offered: the page's, or the one selected there."""
    number = parse_row_id(choice.removeprefix(SAME)) if choice.startswith(SAME) else None
    shown = experiment if number is None else Experiment.objects.filter(pk=number).first()
    return shown if shown is not None and shown.trace and actor.can_access_queues(shown.queues) else None


def _list_chosen_laws(scenario: Scenario, submitted: QueryDict | None, experiment: Experiment | None) -> list[str]:
    if submitted:
        return list(submitted.getlist("law"))
    return experiment.laws if experiment else list(scenario.laws)


def _build_setting(declared: Parameter, submitted: QueryDict | None, found: Experiment | None) -> LabSetting:
    value = found.settings.get(declared.name, declared.default) if found else declared.default
    if submitted:
        value = submitted.get(SET + declared.name, value)
    return LabSetting(declared, value)


def read_experiment(request: HttpRequest) -> WantedExperiment:
    """Read the posted form. Raises `BadInput` that names its field."""
    posted = request.POST
    scenario = get_scenario(posted.get("scenario", ""))
    declared = {setting.name: setting for setting in scenario.settings}
    try:
        given = {
            name: parse_setting(declared[name], text) if name in declared else text
            for name, text in _read_settings(posted).items()
        }
        seed = parse_number(posted.get("seed", ""), "seed")
        names, title = posted.getlist("law"), posted.get("title", "")
        if not names:
            raise BadInput("law", "choose at least one law.")
        wanted = read_wanted(scenario.name, names, given, seed, title)
    except BadInput as error:
        # A setting is the field set-NAME on the page.
        place = SET + error.field if SET + error.field in posted else error.field
        raise BadInput(place, error.message) from None
    # Done last, since an uploaded file is kept.
    trace = _trace(request)
    return WantedExperiment(wanted.scenario, wanted.laws, wanted.settings, wanted.seed, wanted.title, trace)


def _read_settings(posted: QueryDict) -> dict[str, str]:
    return {
        field.removeprefix(SET): text
        for field in posted
        if field.startswith(SET) and (text := posted.get(field, "").strip())
    }


def _trace(request: HttpRequest) -> Trace | None:
    choice, column = request.POST.get("trace", OWN), request.POST.get("column", "").strip()
    actor = actor_of(request)
    if choice == OWN:
        return None
    if choice.startswith(SAME):
        return load_experiment_trace(settings.WEIR_DATA, parse_row_id(choice.removeprefix(SAME)) or 0, actor)
    if choice != UPLOAD:
        return find_trace(settings.WEIR_DATA, choice, column, actor)
    file = request.FILES.get("file")
    if file is None:
        raise BadInput("file", "is missing; choose a CSV file, or other arrivals.")
    return save_upload(settings.WEIR_DATA, file.name or "", cast(BinaryIO, file), column, actor)
