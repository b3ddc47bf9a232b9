"""The lab on pages: an experiment is made up, run, read, compared, and applied to the plant."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, BinaryIO, cast

from django.conf import settings
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.accounts.access import actor_of, requires
from console.actions.lab import experiments as lab_steering
from console.actions.lab.experiment_documents import (
    changed_settings,
    experiment_document,
    experiments,
    results_table,
    series_names,
)
from console.actions.lab.lab import WantedExperiment, applicable, read_wanted, scenario_named, typed_setting
from console.actions.lab.traces import Trace, chosen_trace, known_traces, uploaded_trace
from console.connections.surroundings import surroundings
from console.display.override_words import ending_of, instead_words, short
from console.input.form_values import expiry_of, number_of
from console.input.row_id import id_of
from console.pages.frame.action import Done, action
from console.pages.frame.frame import show, snapshot_of
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.model.scenario import Scenario
from queues.errors import BadInput
from workers.batch import runs
from workers.lab.models import Experiment

PER_PAGE = 20
MOST_COMPARED = 4
SET = "set-"  # the fields of a scenario's settings
OWN = ""  # the choice of a trace: the scenario's own arrivals
UPLOAD = "upload"


@require_safe
@requires("plant.view")
def lab(request: HttpRequest) -> HttpResponse:
    """Context: scenarios, form (see `_form`), listed (documents), page_obj, errors."""
    return lab_page(request)


def lab_page(request: HttpRequest, errors: Any = None, submitted: Any = None) -> HttpResponse:
    asked = (submitted or request.GET).get("scenario", "")
    scenario = SCENARIOS.get(asked) or next(iter(SCENARIOS.values()))
    page_obj = Paginator(experiments().order_by("-pk"), PER_PAGE).get_page(request.GET.get("page"))
    return show(
        request,
        "work/lab.html",
        "lab",
        view="frame",
        **_beside(scenario, submitted),
        listed=[experiment_document(each) for each in page_obj.object_list],
        page_obj=page_obj,
        query=f"scenario={scenario.name}" if asked else "",
        errors=errors or {},
    )


@require_safe
@requires("plant.view")
def experiment(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """Context: experiment (document), table (`results_table`), series, is_open, applied, form to run it again
    with changes, errors.
    """
    return experiment_page(request, experiment_id)


def experiment_page(
    request: HttpRequest, experiment_id: int, errors: Any = None, submitted: Any = None
) -> HttpResponse:
    found = get_object_or_404(experiments(), pk=experiment_id)
    scenario = SCENARIOS.get(found.scenario)
    return show(
        request,
        "work/experiment.html",
        "lab",
        view="frame",
        **(_beside(scenario, submitted, found) if scenario else {"scenarios": SCENARIOS}),
        experiment=experiment_document(found),
        table=results_table([found]),
        series=series_names(settings.WEIR_DATA, [found]),
        is_open=found.run is not None and found.run.state in runs.OPEN,
        applied=_applied(found),
        submitted=submitted or {},
        errors=errors or {},
    )


@require_safe
@requires("plant.view")
def compare(request: HttpRequest) -> HttpResponse:
    """Context: compared (documents, two or more by `id` in the URL), table over all of them, series."""
    ids = [known for text in request.GET.getlist("id") if (known := id_of(text)) is not None]
    found = sorted(experiments().filter(pk__in=ids[:MOST_COMPARED]), key=lambda each: ids.index(each.pk))
    return show(
        request,
        "work/compare.html",
        "lab",
        view="frame",
        compared=[experiment_document(each) for each in found],
        differing=_differing(found),
        table=results_table(found),
        series=series_names(settings.WEIR_DATA, found),
        most=MOST_COMPARED,
        too_many=len(ids) > MOST_COMPARED,
    )


@action("lab.run", lab_page)
def begin(request: HttpRequest) -> Done:
    """Posted: scenario, law (repeated), set-NAME, seed, title, trace (a known file, or "upload" with file),
    column. Opens the experiment.
    """
    made = lab_steering.begin(actor_of(request), _wanted(request), surroundings())
    return _opened(made, f"Experiment {made.pk} is begun: {len(made.laws)} laws.")


@action("lab.run", experiment_page)
def cancel(request: HttpRequest, experiment_id: int) -> Done:
    """Nothing is posted but the wish."""
    found = get_object_or_404(experiments(), pk=experiment_id)
    lab_steering.cancel(actor_of(request), found, timezone.now())
    return _opened(found, f"Experiment {found.pk} is cancelled; what is simulated stays.")


@action("override.set", experiment_page)
def apply(request: HttpRequest, experiment_id: int) -> Done:
    """Posted: law (of the lab), loop (a number, or all), name (repeated), reason, expiry."""
    found = get_object_or_404(experiments(), pk=experiment_id)
    posted = request.POST
    made = lab_steering.override(
        actor_of(request),
        found,
        posted.get("law", ""),
        posted.get("loop", ""),
        posted.getlist("name"),
        reason=posted.get("reason", ""),
        now=timezone.now(),
        expiry=expiry_of(posted),
    )
    what = ", ".join(f"{each.name.replace('_', ' ')} {short(each.value)}" for each in made)
    message = f"{what[:1].upper()}{what[1:]} {ending_of(made[0])}.{instead_words(made)}"
    url = reverse("experiment", args=[found.pk])
    return Done(message, url, {"overrides": [each.pk for each in made]})


@action("plan.propose", experiment_page)
def propose(request: HttpRequest, experiment_id: int) -> Done:
    """Posted: law (of the lab). Opens the plan."""
    found = get_object_or_404(experiments(), pk=experiment_id)
    law = request.POST.get("law", "")
    made = lab_steering.plan(actor_of(request), found, law, snapshot_of(request), timezone.now())
    url = reverse("plan", args=[made.pk])
    return Done(f"Plan {made.pk} waits for approval.", url, {"plan": made.pk, "go": url})


def _opened(made: Experiment, message: str) -> Done:
    url = reverse("experiment", args=[made.pk])
    return Done(message, url, {"experiment": made.pk, "go": url})


def _wanted(request: HttpRequest) -> WantedExperiment:
    posted = request.POST
    scenario = scenario_named(posted.get("scenario", ""))
    declared = {each.name: each for each in scenario.settings}
    try:
        given = {
            name: typed_setting(declared[name], text) if name in declared else text
            for name, text in _settings(posted).items()
        }
        seed = number_of(posted.get("seed", ""), "seed")
        names, title = posted.getlist("law"), posted.get("title", "")
        if not names:
            raise BadInput("law", "choose at least one.")
        wanted = read_wanted(scenario.name, names, given, seed, title)
    except BadInput as error:
        # A setting is the field set-NAME on the page.
        place = SET + error.field if SET + error.field in posted else error.field
        raise BadInput(place, error.message) from None
    # Last, since an uploaded file is kept.
    trace = _trace(request)
    return WantedExperiment(wanted.scenario, wanted.laws, wanted.settings, wanted.seed, wanted.title, trace)


def _settings(posted: QueryDict) -> dict[str, str]:
    return {
        field.removeprefix(SET): text
        for field in posted
        if field.startswith(SET) and (text := posted.get(field, "").strip())
    }


def _trace(request: HttpRequest) -> Trace | None:
    choice, column = request.POST.get("trace", OWN), request.POST.get("column", "").strip()
    if choice == OWN:
        return None
    if choice != UPLOAD:
        return chosen_trace(settings.WEIR_DATA, choice, column)
    file = request.FILES.get("file")
    if file is None:
        raise BadInput("file", "is missing; choose a CSV file, or other arrivals.")
    return uploaded_trace(settings.WEIR_DATA, file.name or "", cast(BinaryIO, file), column)


def _beside(scenario: Scenario, submitted: Any, found: Experiment | None = None) -> dict[str, Any]:
    """What the form at the left shows: a scenario's laws and settings, as typed, as of an experiment, or by
    default.
    """
    return {
        "scenarios": SCENARIOS,
        "scenario": scenario,
        "laws": [{"name": law, "chosen": law in _laws(scenario, submitted, found)} for law in scenario.laws],
        "rows": [_row(each, submitted, found) for each in scenario.settings],
        "seed": (submitted or {}).get("seed", found.seed if found else 1),
        "title": (submitted or {}).get("title", ""),
        "column": (submitted or {}).get("column", ""),
        "trace": (submitted or {}).get("trace", OWN),
        "traces": known_traces(settings.WEIR_DATA),
    }


def _laws(scenario: Scenario, submitted: Any, found: Experiment | None) -> list[str]:
    if submitted:
        return list(submitted.getlist("law"))
    return found.laws if found else list(scenario.laws)


def _row(declared: Any, submitted: Any, found: Experiment | None) -> dict[str, Any]:
    value = found.settings.get(declared.name, declared.default) if found else declared.default
    if submitted:
        value = submitted.get(SET + declared.name, value)
    return {"declared": declared, "value": value}


def _applied(found: Experiment) -> list[dict[str, Any]]:
    """Each law that the plant may take: its parameters beside what is in force on its loops."""
    now, shown = timezone.now(), []
    incidental = found.settings.keys() - changed_settings(found).keys()
    for law, each in applicable(found).items():
        loops = lab_steering.loops_of_law(each)
        held = [lab_steering.in_force_on(loop, now) for loop in loops]
        rows = [_applied_row(name, value, held, incidental) for name, value in each.values.items()]
        shown.append({"law": law, "of": each, "loops": loops, "rows": rows})
    return shown


def _applied_row(
    name: str, value: Any, held: Sequence[Mapping[str, Any]], incidental: Collection[str]
) -> dict[str, Any]:
    """`chosen`: it isn't in force, and not merely what the scenario happens to begin with."""
    is_now = _held(held, name)
    return {
        "name": name,
        "value": value,
        "held": is_now,
        "chosen": is_now != value and name not in incidental,
    }


def _held(held: Sequence[Mapping[str, Any]], name: str) -> Any:
    """The value in force, None where loops differ."""
    values = [each.get(name) for each in held]
    return values[0] if values and all(value == values[0] for value in values) else None


def _differing(found: list[Experiment]) -> list[dict[str, Any]]:
    """Settings (and seed and trace) in which experiments differ: {name, values in their order}."""
    columns = [
        {**each.settings, "seed": each.seed, "trace": (each.trace or {}).get("name", "own arrivals")}
        for each in found
    ]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [{"name": name, "values": [column.get(name) for column in columns]} for name in names]
    return [row for row in rows if any(value != row["values"][0] for value in row["values"])]
