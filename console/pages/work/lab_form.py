"""The form of an experiment: its values, and what was posted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

from django.conf import settings
from django.http import HttpRequest, QueryDict

from common.errors import BadInput
from common.parameter import Parameter
from console.accounts.access import Actor, actor_of
from console.actions.lab.experiments import WantedExperiment, get_scenario, parse_setting, read_wanted
from console.actions.lab.traces import Trace, find_trace, list_traces, load_experiment_trace, save_upload
from console.input.form_values import parse_number, parse_row_id
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.scenario import Scenario
from workers.lab.models import Experiment
from workers.twin.catalog import NAME, list_laws

SET = "set-"  # the fields of a scenario's settings
OWN = ""  # the choice of a trace: the scenario's own arrivals
UPLOAD = "upload"
SAME = "experiment-"  # and its number: the arrivals of that experiment again


@dataclass(frozen=True)
class LawChoice:
    """A law of the scenario, or the shipped loops, and whether it takes part."""

    name: str
    chosen: bool

    @property
    def is_shipped(self) -> bool:
        return self.name == NAME


@dataclass(frozen=True)
class LabSetting:
    """A setting of the scenario, with its value."""

    declared: Parameter
    value: object


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
    typed = submitted or QueryDict()
    chosen = typed.getlist("law") if submitted else experiment.laws if experiment else scenario.laws
    kept = experiment.settings if experiment else {}
    # The arrivals of the page's experiment are offered again, or of the one that was selected there.
    choice = typed.get("trace", "")
    number = parse_row_id(choice.removeprefix(SAME)) if choice.startswith(SAME) else None
    same = experiment if number is None else Experiment.objects.filter(pk=number).first()
    if same is not None and not (same.trace and actor.can_access_queues(same.queues)):
        same = None
    return LabForm(
        scenarios=SCENARIOS,
        scenario=scenario,
        laws=[LawChoice(law, law in chosen) for law in list_laws(scenario)],
        rows=[
            LabSetting(setting, typed.get(SET + setting.name, kept.get(setting.name, setting.default)))
            for setting in scenario.settings
        ],
        seed=typed.get("seed", experiment.seed if experiment else 1),
        title=typed.get("title", ""),
        column=typed.get("column", ""),
        trace=typed.get("trace", f"{SAME}{same.pk}" if same else OWN),
        same=same,
        traces=list_traces(settings.WEIR_DATA, actor),
    )


def read_experiment(request: HttpRequest) -> WantedExperiment:
    """Read the posted form. Raises `BadInput` that names its field."""
    posted = request.POST
    scenario = get_scenario(posted.get("scenario", ""))
    declared = {setting.name: setting for setting in scenario.settings}
    try:
        given = {}
        for field in posted:
            name, text = field.removeprefix(SET), posted.get(field, "").strip()
            if field.startswith(SET) and text:
                given[name] = parse_setting(declared[name], text) if name in declared else text
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
    trace = read_trace_choice(request)
    return WantedExperiment(wanted.scenario, wanted.laws, wanted.settings, wanted.seed, wanted.title, trace)


def read_trace_choice(request: HttpRequest) -> Trace | None:
    """Return the posted arrivals; None: the scenario's own. Raises `BadInput`."""
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
        raise BadInput("file", "is missing. Choose a CSV file, or other arrivals.")
    return save_upload(settings.WEIR_DATA, file.name or "", cast(BinaryIO, file), column, actor)
