"""The lab as people use it: a requested experiment, and which of its results the plant may apply.

User actions on experiments: start, cancel, and apply results to the plant; audited.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction

from common import checks
from common.errors import BadInput
from common.parameter import Parameter
from common.parsing import parse_decimal_number
from console.accounts.access import Actor, require_data_access
from console.actions import loops as steering
from console.actions.lab.traces import Trace
from console.actions.proposals import plans
from console.audit import audit_log
from controllers import catalog
from controllers import catalog as laws
from controllers.rebalancing import law as rebalancing
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.scenario import Scenario
from workers.batch import runs
from workers.batch.job import JobContext
from workers.batch.jobs import experiment as job
from workers.batch.jobs.experiment import check_cost
from workers.documents.snapshot import Snapshot
from workers.lab.models import Experiment
from workers.lab.series import write_trace
from workers.models import Loop, Override, Plan
from workers.steering import overrides
from workers.steering.overrides import Expiry
from workers.steering.scope import Scope, list_active_loops
from workers.twin.catalog import NAME, add_shipped_run

# A loop's cadence is its own: an experiment can't determine it.
NOT_APPLIED = ("interval_seconds",)
MAX_TITLE = 120


@dataclass(frozen=True)
class WantedExperiment:
    """An experiment to start. figure, runs, and seeds: as in `Experiment`."""

    scenario: Scenario
    laws: list[str]
    settings: dict[str, Any]
    seed: int
    title: str = ""
    trace: Trace | None = None
    figure: str = ""
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seeds: int = 1


@dataclass(frozen=True)
class PlantEquivalent:
    """The plant's equivalent of a law of the lab: a law, and values of its parameters."""

    law: str
    values: Mapping[str, Any]
    moves_points: bool


def get_scenario(name: str) -> Scenario:
    """Return the scenario of that name. Raises `BadInput`."""
    if name not in SCENARIOS:
        raise BadInput("scenario", f"{name[:40]} is unknown. Choose one of {', '.join(SCENARIOS)}.")
    return SCENARIOS[name]


def read_wanted(
    name: str,
    names_of_laws: Sequence[str],
    settings: Mapping[str, Any],
    seed: float,
    title: str = "",
    trace: Trace | None = None,
) -> WantedExperiment:
    """Validate a new experiment. Raises `BadInput` that names scenario, law, seed, title, or the setting."""
    scenario = get_scenario(name)
    if not checks.is_whole(seed, 0, 2**63 - 1):
        raise BadInput("seed", f"must be a whole number of at least 0, not {str(seed)[:40]}.")
    if len(title) > MAX_TITLE:
        raise BadInput("title", f"must have at most {MAX_TITLE} characters.")
    try:
        offered = add_shipped_run(scenario) if NAME in names_of_laws else scenario
        read = offered.read_laws(names_of_laws)
        values = scenario.read_settings(settings)
        check_cost(scenario, values, len(read))
    except BadInput as error:
        raise move_to_field(error) from None
    return WantedExperiment(scenario, read, values, seed, title.strip(), trace)


def move_to_field(error: BadInput) -> BadInput:
    field = error.field.removeprefix("--set ").removeprefix("--")
    return BadInput("law" if field == NAME else field, error.message)


def parse_setting(declared: Parameter, text: str) -> str | float:
    """Parse a setting as its kind. Raises `BadInput` that names it."""
    if declared.kind in ("choice", "text"):
        return text
    value = parse_decimal_number(text)
    if value is None:
        raise BadInput(declared.name, f"{declared.takes()}, not {text[:40]!r}.")
    return value


def list_applicable_settings(experiment: Experiment) -> dict[str, PlantEquivalent]:
    """Return by law of the lab what the plant may apply: parameters of its own law that are settings here."""
    scenario = SCENARIOS.get(experiment.scenario)
    if scenario is None:
        return {}
    values_by_law = {law: _build_applicable(scenario, law, experiment.settings) for law in experiment.laws}
    return {law: values for law, values in values_by_law.items() if values is not None}


def _build_applicable(scenario: Scenario, law: str, settings: Mapping[str, Any]) -> PlantEquivalent | None:
    name, fixed = scenario.steers.get(law, (law, {}))
    if name not in laws.LAWS:
        return None
    known = {parameter.name for parameter in laws.LAWS[name].parameters} - set(NOT_APPLIED)
    values = {key: value for key, value in settings.items() if key in known} | dict(fixed)
    return PlantEquivalent(name, values, name == rebalancing.LAW.name) if values else None


ALL = "all"


@transaction.atomic
def begin(actor: Actor, definition: WantedExperiment, where: JobContext) -> Experiment:
    """Store an experiment and start its run: a chunk for each law."""
    queues = definition.trace.queues if definition.trace else []
    require_data_access(actor, "lab.run", queues)
    made = Experiment.objects.create(
        scenario=definition.scenario.name,
        title=definition.title,
        laws=definition.laws,
        settings=definition.settings,
        seed=definition.seed,
        figure=definition.figure,
        runs=definition.runs,
        seeds=definition.seeds,
        trace=definition.trace.describe() if definition.trace else None,
        queues=queues,
        owner=actor.user,
        created_at=where.now,
    )
    if definition.trace:
        write_trace(where.data, made.pk, definition.trace.values)
    made.run = runs.begin(job.NAME, where, {"experiment": made.pk}, owner=actor.user)
    made.save(update_fields=["run"])
    after = {"scenario": made.scenario, "laws": made.laws, "seed": made.seed, "run": made.run.pk}
    if made.figure:
        after |= {"figure": made.figure, "seeds": made.seeds}
    audit_log.record(actor, "lab.run", f"experiment {made.pk}", after=after)
    return made


def cancel(actor: Actor, experiment: Experiment, now: datetime) -> Experiment:
    """Cancel its run; finished simulations stay. Raises `BadInput` if it has ended."""
    require_data_access(actor, "lab.run", experiment.queues)
    if experiment.run is None:
        raise BadInput("run", "has already ended.")
    with transaction.atomic():
        runs.cancel(experiment.run, now)
        before = {"state": experiment.run.state}
        audit_log.record(actor, "lab.cancel", f"experiment {experiment.pk}", before=before)
    return Experiment.objects.select_related("run", "owner").get(pk=experiment.pk)


@transaction.atomic
def override(
    actor: Actor,
    experiment: Experiment,
    law: str,
    loop: str,
    names: Collection[str],
    *,
    reason: str,
    now: datetime,
    expiry: Expiry,
) -> list[Override]:
    """Override a loop, or all loops of the plant's law, with an experiment's values until they expire.

    A single loop is given by its number. Values that are already in force are left out. Raises `BadInput`.
    """
    values_of_law = _find_applicable(experiment, law)
    values = {name: values_of_law.values[name] for name in names if name in values_of_law.values}
    if not values:
        raise BadInput("name", f"is missing. Choose at least one of {', '.join(values_of_law.values)}.")
    loops = select_law_loops(values_of_law, loop)
    held = [list_active_overrides(law_loop, now) for law_loop in loops]
    changed = {name: value for name, value in values.items() if any(override_[name] != value for override_ in held)}
    if not changed:
        raise BadInput("name", "has values that are already in force. Nothing to change.")
    scope = Scope(law=values_of_law.law) if loop == ALL else Scope(loops[0])
    made = steering.override(actor, scope, changed, reason=reason, now=now, expiry=expiry)
    after = {"loops": [law_loop.name for law_loop in loops], **changed}
    audit_log.record(actor, "lab.apply", f"experiment {experiment.pk}", reason=reason.strip(), after=after)
    return made


def plan(actor: Actor, experiment: Experiment, law: str, snapshot: Snapshot | None, now: datetime) -> Plan:
    """Create a plan of moved points for the goal of an experiment's law. Raises `BadInput`."""
    values_of_law = _find_applicable(experiment, law)
    if not values_of_law.moves_points:
        raise BadInput("law", f"{law} moves no points, so it has no plan. Apply its parameters as overrides.")
    goal = str(values_of_law.values.get("goal", "below-busy"))
    return plans.propose_rebalance(actor, goal, snapshot, now)


def list_law_loops(applied: PlantEquivalent) -> list[Loop]:
    """Return the loops that use the plant's law, by name."""
    return list(list_active_loops().filter(law=applied.law).order_by("name"))


def select_law_loops(applied: PlantEquivalent, loop: str) -> list[Loop]:
    """Return all of them, or the one of that number. Raises `BadInput`."""
    chosen = [law_loop for law_loop in list_law_loops(applied) if loop in (ALL, str(law_loop.pk))]
    if not chosen:
        raise BadInput("loop", f"is not a loop of {applied.law}. Choose a loop from the list.")
    return chosen


def _find_applicable(experiment: Experiment, law: str) -> PlantEquivalent:
    values_by_law = list_applicable_settings(experiment)
    if law not in values_by_law:
        known = ", ".join(values_by_law) or "none of this experiment's laws"
        raise BadInput("law", f"{law[:40]} can't be applied to the plant. The laws that can are {known}.")
    return values_by_law[law]


def list_active_overrides(loop: Loop, now: datetime) -> dict[str, Any]:
    held = overrides.list_effective(loop, now)
    return overrides.get_effective_parameters(catalog.get_law(loop.law), loop.parameters, held, now)
