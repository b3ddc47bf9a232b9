"""The registry of adapter kinds, which are found in this folder, and the adapter of each registered plant."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from urllib.parse import urlsplit

import httpx

from common import checks
from common import environment as variables
from common.errors import BadInput, WeirError
from controllers.framework.discovery import import_modules, import_subpackages
from workers.host import egress
from workers.plants import foreign
from workers.plants.foreign.answer_limit import order_seconds
from workers.plants.foreign.bounded import BoundedPlant, call_within
from workers.plants.foreign.kind import Adapter, AdapterKind, PlantAddress
from workers.plants.guard.manifests import GuardManifest
from workers.plants.models import RegisteredPlant
from workers.plants.orders import OrderedPlant
from workers.plants.plant import ElasticPlant
from workers.plants.reached import USUAL, ConvergenceTimeout
from workers.plants.registry import LOCAL, UnknownPlant

# Kinds of earlier versions, whose plants may still be registered, and what replaces each.
RETIRED_KINDS = {
    "heron": "Apache has retired Heron. Remove this plant.",
    "prometheus": (
        "Attach a declared plant with PromQL sensors (see the page Prometheus in Help), and remove this plant."
    ),
}


@cache
def list_kinds() -> Mapping[str, AdapterKind]:
    """Return the kinds by name, sorted, of each module and package here that defines `ADAPTER = AdapterKind(…)`.

    Raise ValueError if two kinds have one name.
    """
    modules = (*import_modules(foreign), *import_subpackages(foreign))
    kinds = [kind for module in modules if isinstance(kind := getattr(module, "ADAPTER", None), AdapterKind)]
    kinds_by_name = {kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.name)}
    if len(kinds_by_name) < len(kinds):
        raise ValueError("two kinds of plant adapters have the same name")
    return kinds_by_name


def get_kind(name: str) -> AdapterKind:
    """Return the kind with this name. Raise `BadInput`, listing the known kinds, if there is none."""
    if name in RETIRED_KINDS:
        raise BadInput("kind", f"{name} is no longer supported. {RETIRED_KINDS[name]}")
    if name not in list_kinds():
        raise BadInput("kind", f"must be one of {', '.join(list_kinds())}, not {name[:40]!r}.")
    return list_kinds()[name]


def get_title(name: str) -> str:
    """Return the title of a kind, or its name if the kind no longer exists: its plants stay registered."""
    return list_kinds()[name].title if name in list_kinds() else name


def build_address(
    row: RegisteredPlant,
    environment: Mapping[str, str] = variables.PROCESS,
    transport: httpx.BaseTransport | None = None,
) -> PlantAddress:
    """Return how a plant is reached now.

    Raise `BadInput` if the address is not allowed, or if its secret is not in the environment.
    """
    kind = get_kind(row.kind)
    if row.secret_environment:
        egress.check_secret_name(row.secret_environment, "secret_environment")
    check_url(row.url, kind)
    _check_secret_host(row, kind, environment)
    secret = variables.read_secret(row.secret_environment, environment)
    if row.secret_environment and not secret:
        raise BadInput("secret_environment", f"names {row.secret_environment}, which is not set in Weir's environment")
    return PlantAddress(
        name=row.name,
        url=row.url,
        options=row.options,
        secret=secret,
        secret_name=row.secret_environment,
        transport=transport,
    )


def create_adapter(
    row: RegisteredPlant,
    environment: Mapping[str, str] = variables.PROCESS,
    transport: httpx.BaseTransport | None = None,
) -> Adapter:
    """Return the adapter of a registered plant. Raise `BadInput` as `build_address` does."""
    return get_kind(row.kind).make(build_address(row, environment, transport))


def check(row: RegisteredPlant) -> None:
    """Raise `BadInput` if the registration is invalid."""
    if not checks.PLANT_NAME.match(row.name):
        raise BadInput(
            "name", "must start with a lowercase letter and have at most 40 lowercase letters, digits, and hyphens."
        )
    if row.name == LOCAL:
        raise BadInput("name", f"{LOCAL} is Weir's own plant. Choose another name.")
    kind = get_kind(row.kind)
    check_url(row.url, kind)
    if row.secret_environment:
        egress.check_secret_name(row.secret_environment, "secret_environment")
        _check_secret_host(row, kind)
    declared = {option.name: option for option in kind.options}
    for name, value in row.options.items():
        if name not in declared:
            known = ", ".join(declared) or "none"
            raise BadInput(name, f"is unknown. Options of {kind.name}: {known}.")
        if value != "":
            try:
                declared[name].check(value, "options")
            except BadInput as error:
                raise BadInput(name, f"{error.message}.") from None
    for name, option in declared.items():
        if option.required and not row.options.get(name):
            raise BadInput(name, f"is required: {option.help}.")
    if kind.check is not None:
        kind.check(PlantAddress(name=row.name, url=row.url, options=row.options))


def check_url(url: str, kind: AdapterKind | None = None) -> None:
    """Raise `BadInput` if the URL is not an address of this kind, or contains a password.

    Without a kind, any HTTP address is valid. A password is refused because the URL is displayed.
    """
    if kind is not None and not kind.schemes:
        if url:
            raise BadInput("url", f"must be empty: {kind.title} has no address.")
        return
    checked = egress.check_url(url) if kind is None else egress.check_url(url, schemes=kind.schemes, ports=kind.ports)
    if checked.query:
        raise BadInput("url", "must not contain a password or a query. Name the variable with the token instead.")


def _check_secret_host(
    row: RegisteredPlant, kind: AdapterKind, environment: Mapping[str, str] = variables.PROCESS
) -> None:
    if kind.schemes:  # a declared plant names its servers and their secrets itself
        egress.check_secret_host(row.secret_environment, urlsplit(row.url).hostname, environment=environment)


def list_adapters() -> list[RegisteredPlant]:
    """Return all registered plants, sorted by name."""
    return list(RegisteredPlant.objects.order_by("name"))


def list_steerable_adapters() -> list[RegisteredPlant]:
    """Return the registered plants of which something can be set."""
    return [row for row in list_adapters() if row.kind in list_kinds() and _steers(list_kinds()[row.kind], row)]


def _steers(kind: AdapterKind, row: RegisteredPlant) -> bool:
    address = PlantAddress(name=row.name, url=row.url, options=row.options)
    return kind.steers and (kind.steers_at is None or kind.steers_at(address))


def get_convergence_timeout(kind: str) -> ConvergenceTimeout:
    """Return the deadlines by which an order to a plant of this kind takes effect."""
    return list_kinds()[kind].patience if kind in list_kinds() else USUAL


@contextmanager
def open_plant(name: str, local: ElasticPlant, by: str, by_loop: bool = False) -> Iterator[ElasticPlant]:
    """Yield the plant, to set its tasks: `local`, or a registered plant, whose client is closed afterwards.

    Everything that is set on a registered plant is recorded as ordered `by` that person or loop, and every call has a
    deadline (`bounded`). Raise `UnknownPlant` if no plant has this name.

    Removing a plant releases it after its registration is deleted. A caller that still uses the plant at that moment
    notices it afterwards and releases the plant in turn.
    """
    if name == LOCAL:
        yield local
        return
    row = RegisteredPlant.objects.filter(name=name).first()
    if row is None:
        raise UnknownPlant("plant", f"{name} is not registered.")
    with open_bounded(row) as plant:
        try:
            yield OrderedPlant(row, plant, by, by_loop)
        finally:
            now = RegisteredPlant.objects.filter(name=row.name).first()
            if now is None or now.place != row.place:
                plant.release()


def build_guard_manifests(row: RegisteredPlant) -> Sequence[GuardManifest]:
    """Return the files that start the guard beside a plant, () if it needs none. They contain no secret."""
    kind = list_kinds().get(row.kind)
    if kind is None or kind.build_guard is None:
        return ()
    return kind.build_guard(PlantAddress(name=row.name, url=row.url, options=row.options))


def has_own_controllers(name: str) -> bool:
    """Return whether the plant's own controllers may have to be held while Weir controls it."""
    row = RegisteredPlant.objects.filter(name=name).first()
    return row is not None and row.kind in list_kinds() and bool(list_kinds()[row.kind].let_go_by_hand)


def let_go(row: RegisteredPlant) -> str:
    """Release the plant's own controllers: Weir no longer controls anything there, as reached by `row`.

    Return "" once they are released, or if none are held. Otherwise return why the result is unknown and what to do.
    """
    kind = list_kinds().get(row.kind)
    if kind is None or not kind.let_go_by_hand or not _steers(kind, row):
        return ""
    try:
        with open_bounded(row) as plant:
            plant.release()
    except WeirError as error:
        return f"{error} {kind.let_go_by_hand}"
    return ""


@contextmanager
def open_bounded(row: RegisteredPlant) -> Iterator[BoundedPlant]:
    """Yield a registered plant on which every call has a deadline; its client is closed afterwards."""
    with closing(BoundedPlant(row.name, call_within(order_seconds(), row.name, create_adapter, row))) as plant:
        yield plant
