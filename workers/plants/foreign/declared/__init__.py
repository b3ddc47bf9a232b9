"""Plants that are declared in a page of YAML: what is read, what is called, and what proves it."""

import time
from collections.abc import Mapping
from contextlib import closing

import httpx

from common import environment as variables
from common.documents import MAX_YAML_CHARACTERS
from common.errors import BadInput, WeirError
from controllers.framework.reason import format_count
from controllers.parallelism.measured_topology import MeasuredOperator
from queues import keys
from workers.coordination.connections import control_server
from workers.documents.plants import FoundPart, FoundPlant
from workers.plants.foreign import group_measures
from workers.plants.foreign.declared.call import TaskOrder
from workers.plants.foreign.declared.declaration import PlantDeclaration, parse_declaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.declared.examples import EXAMPLES
from workers.plants.foreign.kind import AdapterKind, PlantAddress, declare_option
from workers.plants.foreign.leases import store_tasks_before
from workers.plants.foreign.stored_notes import ExpiringNotes

OPTION = "declaration"


def read_declaration(address: PlantAddress) -> PlantDeclaration:
    """Return the declaration at an address. Raise `BadInput`, naming the field in it and its line.

    Error messages about its servers use the name in the declaration, whatever name the plant is registered under.
    """
    return parse_declaration(address.get_option(OPTION))


def make(address: PlantAddress) -> DeclaredPlant:
    control = control_server()
    orders = ExpiringNotes(lambda operator: keys.TASK_ORDER.build(address.name, operator), control)
    before = store_tasks_before(address.name, control, time.time)
    return DeclaredPlant(read_declaration(address), transport=address.transport, orders=orders, before=before)


def inspect(address: PlantAddress) -> FoundPlant:
    """Make a dry run: read each sensor, call nothing."""
    declaration = read_declaration(address)
    said, needs = make_dry_run(declaration, transport=address.transport)
    operators = [
        FoundPart(
            name=operator.name,
            kind="source" if operator.is_source else "operator",
            minimum=operator.minimum,
            maximum=operator.maximum,
            fixed=operator.fixed,
        )
        for operator in declaration.operators.values()
    ]
    sensors = [FoundPart(name=name, kind="sensor", fixed="a sensor") for name in declaration.sensors]
    counts = f"{format_count(len(sensors), 'sensor')}, {format_count(len(operators), 'operator')}"
    what = f"{declaration.title or declaration.name}: {counts}"
    return FoundPlant(name=declaration.name, what=what, said=said, parts=[*operators, *sensors], needs=needs)


def make_dry_run(
    declaration: PlantDeclaration,
    environment: Mapping[str, str] = variables.PROCESS,
    transport: httpx.BaseTransport | None = None,
) -> tuple[list[str], list[str]]:
    """Read each sensor once, and make no call. Return what was read and would be called, and what failed.

    The calls of an operator are for one more task, or for one less at its maximum.
    """
    with closing(DeclaredPlant(declaration, environment, transport)) as plant:
        operators: Mapping[str, MeasuredOperator] = {}
        error = ""
        try:
            operators = plant.get_topology().operators
        except WeirError as refused:
            error = str(refused)
        statuses = plant.get_sensor_statuses()
    said = [
        f"Sensor {name} = {'unknown' if status.value is None else f'{status.value:g}'}"
        f"{f' {status.unit}' if status.unit else ''} ({declaration.sensors[name].source.describe()})"
        for name, status in statuses.items()
        if not status.error
    ]
    for operator in declaration.operators.values():
        if operator.actuator is None or operator.proof is None:
            continue
        measured = operators.get(operator.name)
        is_known = measured is not None and measured.unknown_tasks is None
        now = measured.parallelism if measured is not None and is_known else operator.minimum
        order = TaskOrder(now, now + 1 if now < operator.maximum else now - 1)
        calls, inverse = (
            "; ".join(call.describe(step) for call, step in operator.actuator.build_steps(task_order))
            for task_order in (order, TaskOrder(order.tasks, order.before))
        )
        said.append(
            f"A change of {operator.name} from {order.before} to {order.tasks} would call: {calls}. Inverse: {inverse}."
            f" Proof: {operator.proof.sensor} = {order.tasks} within {operator.proof.within_seconds:g} s."
        )
    needs = [status.error for status in statuses.values() if status.error]
    return said, [*needs, error] if error and error not in needs else needs


def check(address: PlantAddress) -> None:
    """Raise `BadInput`, naming the field in the declaration and its line.

    A sensor that is a proof must be read more often than an order may take. A hold without an expiry is refused: it
    would stay after Weir stopped controlling the plant, because a loop is set to advise or ends. A hold of an earlier
    declaration is released as that declaration says.
    """
    declaration, lag = read_declaration(address), group_measures.OPTION
    names = {name for name, operator in declaration.operators.items() if not operator.is_source}
    if unknown := set(group_measures.parse_groups(address.get_option(lag))) - names:
        raise BadInput(lag, f"names {min(unknown)}, which is not an operator with tasks in the declaration.")
    for place, operator in enumerate(declaration.operators.values()):
        every = declaration.sensors[operator.proof.sensor].every_seconds if operator.proof else 0.0
        if operator.proof and operator.proof.within_seconds <= every:
            raise BadInput(
                f"operators[{place}].proof.within_seconds",
                f"must be more than {every:g} s, because {operator.proof.sensor} is read only every {every:g} s",
            )
    if declaration.hold is not None and not declaration.hold.has_placeholder("seconds"):
        raise BadInput("hold", "must contain $seconds, so that the hold expires")


def steers(address: PlantAddress) -> bool:
    """Return whether anything is called: a declaration may consist of sensors alone."""
    try:
        return any(operator.actuator for operator in read_declaration(address).operators.values())
    except BadInput:  # such as a command that is no longer allowed
        return False


ADAPTER = AdapterKind(
    name="declared",
    file=OPTION,
    title="Declared plant",
    schemes={},
    options=(
        declare_option(
            OPTION,
            "sensors to read and calls to make, in YAML",
            required=True,
            most=MAX_YAML_CHARACTERS,
            many_lines=True,
            examples=EXAMPLES,
        ),
        declare_option(group_measures.OPTION, group_measures.HELP, "Lag sources"),
    ),
    make=make,
    inspect=inspect,
    check=check,
    steers_at=steers,
    let_go_by_hand="If the plant's own controllers are still held, release them manually with the release"
    " call from the declaration.",
)
