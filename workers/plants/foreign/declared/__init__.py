"""Plants that are declared in a page of YAML: what is read, what is called, and what proves it."""

from common.documents import MAX_YAML_CHARACTERS
from common.errors import BadInput
from controllers.framework.reason import format_count
from workers.coordination.connections import control_server
from workers.documents.plants import FoundPart, FoundPlant
from workers.plants.foreign import group_measures
from workers.plants.foreign.declared.declaration import DeclaredOperator, PlantDeclaration, parse_declaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.declared.dry_run import make_dry_run
from workers.plants.foreign.declared.examples import EXAMPLES
from workers.plants.foreign.declared.measured import ONLY_BRINGS, ONLY_SEEN
from workers.plants.foreign.declared.task_orders import SharedTaskOrders
from workers.plants.foreign.kind import AdapterKind, PlantAddress, declare_option

OPTION = "declaration"


def read_declaration(address: PlantAddress) -> PlantDeclaration:
    """Return the declaration at an address. Raise `BadInput`, naming the field in it and its line.

    Error messages about its servers use the name in the declaration, whatever name the plant is registered under.
    """
    return parse_declaration(address.get_option(OPTION))


def make(address: PlantAddress) -> DeclaredPlant:
    orders = SharedTaskOrders(control_server(), address.name)
    return DeclaredPlant(read_declaration(address), transport=address.transport, orders=orders)


def inspect(address: PlantAddress) -> FoundPlant:
    """Make a dry run: read each sensor, call nothing."""
    declaration = read_declaration(address)
    ran = make_dry_run(declaration, transport=address.transport)
    operators = [_build_part(operator) for operator in declaration.operators.values()]
    sensors = [FoundPart(name=name, kind="sensor", fixed="a sensor") for name in declaration.sensors]
    said = [
        f"Sensor {sensor.name} = {'unknown' if sensor.value is None else f'{sensor.value:g}'}"
        f"{f' {sensor.unit}' if sensor.unit else ''} ({sensor.asked})"
        for sensor in ran.sensors
        if not sensor.error
    ]
    said += [
        f"A change of {order.operator} from {order.before} to {order.tasks} would call:"
        f" {'; '.join(order.calls)}. Inverse:"
        f" {'; '.join(order.inverse)}. Proof: {order.proof}."
        for order in ran.orders
    ]
    counts = f"{format_count(len(declaration.sensors), 'sensor')}, {format_count(len(operators), 'operator')}"
    needs = [sensor.error for sensor in ran.sensors if sensor.error]
    if ran.error and ran.error not in needs:
        needs.append(ran.error)
    return FoundPlant(
        name=declaration.name,
        what=f"{declaration.title or declaration.name}: {counts}",
        said=said,
        parts=[*operators, *sensors],
        needs=needs,
    )


def _build_part(operator: DeclaredOperator) -> FoundPart:
    fixed = ONLY_BRINGS if operator.is_source else None if operator.actuator else ONLY_SEEN
    kind = "source" if operator.is_source else "operator"
    return FoundPart(name=operator.name, kind=kind, minimum=operator.minimum, maximum=operator.maximum, fixed=fixed)


def check(address: PlantAddress) -> None:
    """Raise `BadInput`, naming the field in the declaration and its line.

    A hold without an expiry is refused: it would stay after Weir stopped controlling the plant, because a loop is set
    to advise or ends. A hold of an earlier declaration is released as that declaration says.
    """
    declaration, lag = read_declaration(address), group_measures.OPTION
    names = {name for name, each in declaration.operators.items() if not each.is_source}
    if unknown := set(group_measures.parse_groups(address.get_option(lag))) - names:
        raise BadInput(lag, f"names {min(unknown)}, which is not an operator with tasks in the declaration.")
    _check_proofs(declaration)
    hold = declaration.hold
    if hold is not None and not hold.has_seconds_placeholder():
        raise BadInput("hold", "must contain $seconds, so that the hold expires")


def _check_proofs(declaration: PlantDeclaration) -> None:
    """Check the proofs: a sensor must be read more often than an order may take."""
    for place, each in enumerate(declaration.operators.values()):
        every = declaration.sensors[each.proof.sensor].every_seconds if each.proof else 0.0
        if each.proof and each.proof.within_seconds <= every:
            where = f"operators[{place}].proof.within_seconds"
            raise BadInput(
                where, f"must be more than {every:g} s, because {each.proof.sensor} is read only every {every:g} s"
            )


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
            "Declaration",
            required=True,
            most=MAX_YAML_CHARACTERS,
            many_lines=True,
            examples=EXAMPLES,
        ),
        declare_option(group_measures.OPTION, group_measures.HELP, "Lag sources"),
    ),
    secret="not used: the declaration names the variables with its secrets",
    make=make,
    inspect=inspect,
    check=check,
    steers_at=steers,
    let_go_by_hand="If the plant's own controllers are still held, release them manually with the release"
    " call from the declaration.",
)
