"""An adapter for each registered plant, by its kind; and what a registration takes."""

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Protocol

import httpx

from queues import environment as variables
from queues.errors import BadInput
from workers.host import egress
from workers.plants.foreign import heron
from workers.plants.foreign.flink import FlinkPlant
from workers.plants.foreign.heron import HeronPlant
from workers.plants.foreign.line import PlantClient
from workers.plants.foreign.remote import RemotePlant
from workers.plants.models import RegisteredPlant
from workers.plants.plant import Elastic
from workers.plants.registry import LOCAL, UnknownPlant

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}\Z")
LONGEST_OPTION = 200
Kind = RegisteredPlant.Kind
# What each kind takes besides its address: name → what it is.
OPTIONS: dict[str, dict[str, str]] = {
    Kind.WEIR: {},
    Kind.FLINK: {"job": "name or id of the job; empty where only one runs"},
    Kind.HERON: {
        "cluster": "the cluster's name",
        "role": "the role it was submitted with",
        "environ": "its environment; empty for default",
        "topology": "the topology's name",
    },
}


class Adapter(Elastic, Protocol):
    """An elastic plant on a line that is to be closed."""

    def close(self) -> None: ...


def adapter_of(
    row: RegisteredPlant,
    environment: Mapping[str, str] = variables.PROCESS,
    transport: httpx.BaseTransport | None = None,
) -> Adapter:
    """Raises BadInput when its token is not in the environment."""
    if row.secret_environment:
        egress.check_secret_name(row.secret_environment, "secret_environment")
    egress.check_url(row.url)
    token = variables.secret_named(row.secret_environment, environment)
    if row.secret_environment and not token:
        raise BadInput("secret_environment", f"names {row.secret_environment}, which is not set here")
    line = PlantClient(row.name, row.url, token, transport=transport)
    if row.kind == Kind.FLINK:
        return FlinkPlant(line, row.options.get("job", ""))
    if row.kind == Kind.HERON:
        return HeronPlant(line, row.options)
    return RemotePlant(line)


def check(row: RegisteredPlant) -> None:
    """Raise BadInput for a registration that can't be."""
    if not NAME.match(row.name):
        raise BadInput("name", "takes small letters, digits and -, at most 40, a letter first.")
    if row.name == LOCAL:
        raise BadInput("name", f"{LOCAL} is this plant; choose another.")
    if row.kind not in Kind.values:
        raise BadInput("kind", f"takes {', '.join(Kind.values)}, not {row.kind[:40]!r}.")
    check_url(row.url)
    if row.secret_environment:
        egress.check_secret_name(row.secret_environment, "secret_environment")
    for name, value in row.options.items():
        if name not in OPTIONS[row.kind]:
            known = ", ".join(OPTIONS[row.kind]) or "none"
            raise BadInput(name, f"is not known; options of {row.kind}: {known}.")
        if not isinstance(value, str) or len(value) > LONGEST_OPTION:
            raise BadInput(name, f"takes a text of at most {LONGEST_OPTION} characters.")
    if row.kind == Kind.HERON:
        heron.check_options(row.options)


def check_url(url: str) -> None:
    """Raise BadInput for what is no address, or one that carries a password: it is shown."""
    if egress.check_url(url).query:
        raise BadInput("url", "takes an address without password and query; name the token's variable.")


def registered() -> list[RegisteredPlant]:
    """All of them, by name."""
    return list(RegisteredPlant.objects.order_by("name"))


@contextmanager
def plant_named(name: str, local: Elastic) -> Iterator[Elastic]:
    """The plant, to set its tasks: `local`, or a registered one, whose line is closed afterwards. Raises
    UnknownPlant.
    """
    if name == LOCAL:
        yield local
        return
    row = RegisteredPlant.objects.filter(name=name).first()
    if row is None:
        raise UnknownPlant("plant", f"{name} is not registered.")
    with closing(adapter_of(row)) as adapter:
        yield adapter
