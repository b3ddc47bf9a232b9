"""User actions on experiments: start, cancel, and apply results to the plant; audited."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db import transaction

from common.errors import BadInput
from console.accounts.access import Actor, require_data_access
from console.actions import loops as steering
from console.actions.lab.lab import PlantEquivalent, WantedExperiment, list_applicable_settings
from console.actions.proposals import plans
from console.audit import audit_log
from controllers import catalog
from workers.batch import runs
from workers.batch.jobs import experiment as job
from workers.batch.jobs.job import JobContext
from workers.documents.snapshot import Snapshot
from workers.lab.models import Experiment
from workers.lab.series import write_trace
from workers.models import Loop, Override, Plan
from workers.steering import overrides
from workers.steering.overrides import Expiry
from workers.steering.scope import Scope, list_active_loops

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
        raise BadInput("name", f"is missing; choose at least one of {', '.join(values_of_law.values)}.")
    loops = select_law_loops(values_of_law, loop)
    held = [list_active_overrides(law_loop, now) for law_loop in loops]
    changed = {name: value for name, value in values.items() if any(override_[name] != value for override_ in held)}
    if not changed:
        raise BadInput("name", "has values that are already in force; nothing to change.")
    scope = Scope(law=values_of_law.law) if loop == ALL else Scope(loops[0])
    made = steering.override(actor, scope, changed, reason=reason, now=now, expiry=expiry)
    after = {"loops": [law_loop.name for law_loop in loops], **changed}
    audit_log.record(actor, "lab.apply", f"experiment {experiment.pk}", reason=reason.strip(), after=after)
    return made


def plan(actor: Actor, experiment: Experiment, law: str, snapshot: Snapshot | None, now: datetime) -> Plan:
    """Create a plan of moved points for the goal of an experiment's law. Raises `BadInput`."""
    values_of_law = _find_applicable(experiment, law)
    if not values_of_law.moves_points:
        raise BadInput("law", f"{law} moves no points, so it has no plan; apply its parameters as overrides.")
    goal = str(values_of_law.values.get("goal", "below-busy"))
    return plans.propose_rebalance(actor, goal, snapshot, now)


def list_law_loops(applied: PlantEquivalent) -> list[Loop]:
    """Return the loops that use the plant's law, by name."""
    return list(list_active_loops().filter(law=applied.law).order_by("name"))


def select_law_loops(applied: PlantEquivalent, loop: str) -> list[Loop]:
    """Return all of them, or the one of that number. Raises `BadInput`."""
    chosen = [law_loop for law_loop in list_law_loops(applied) if loop in (ALL, str(law_loop.pk))]
    if not chosen:
        raise BadInput("loop", f"is not a loop of {applied.law}; choose a loop from the list.")
    return chosen


def _find_applicable(experiment: Experiment, law: str) -> PlantEquivalent:
    values_by_law = list_applicable_settings(experiment)
    if law not in values_by_law:
        known = ", ".join(values_by_law) or "none of this experiment's laws"
        raise BadInput("law", f"{law[:40]} can't be applied to the plant; {known} can.")
    return values_by_law[law]


def list_active_overrides(loop: Loop, now: datetime) -> dict[str, Any]:
    held = overrides.list_effective(loop, now)
    return overrides.get_effective_parameters(catalog.get_law(loop.law), loop.parameters, held, now)
