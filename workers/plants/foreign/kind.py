"""A kind of plant that others built: what an adapter declares, in one value of its module, `ADAPTER`.

`workers.plants.foreign.adapters` finds it; pages, API, commands and the check of a registration follow it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx

from controllers.parallelism.measured_topology import MeasuredTopology
from queues.errors import BadInput
from workers.documents.consumer_groups import ConsumerGroup
from workers.documents.plants import (
    FoundPart,
    FoundPlant,
    PlantSection,
    PoolSamples,
    ProofStatus,
    SensorStatus,
    UnservedQueue,
)
from workers.host import egress, http_headers
from workers.plants.foreign.client import PlantClient
from workers.plants.plant import Elastic, PlantSilent
from workers.plants.reached import USUAL, Patience

WEB_SCHEMES: Mapping[str, int] = {"http": 80, "https": 443}
LONGEST_OPTION = 200
SECTIONS_SECONDS = 10.0
MOST_POOLS = 20  # of a plant, by name: each has a loop of its own


@dataclass(frozen=True)
class PlantOption:
    """What a kind takes besides its address. help: what it is, after its name. choices: what it may be; any
    text where there are none. default: what an empty one means. examples: name → a text to begin from.
    """

    help: str
    title: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()
    default: str = ""
    longest: int = LONGEST_OPTION
    many_lines: bool = False
    examples: Mapping[str, str] = field(default_factory=dict, repr=False)

    def check(self, name: str, value: object) -> None:
        """Raise BadInput naming the option."""
        if not isinstance(value, str) or len(value) > self.longest:
            raise BadInput(name, f"takes a text of at most {self.longest} characters.")
        if value and self.choices and value not in self.choices:
            raise BadInput(name, f"takes {', '.join(self.choices)}, not {value[:40]!r}.")


@dataclass(frozen=True, kw_only=True)
class PlantAddress:
    """How a plant is reached, checked: what an adapter is made of. secret: the value that the environment
    holds under the registered name, "" for none; secret_name: that name. transport: another than the egress
    policy's, for tests.
    """

    name: str
    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    secret: str = field(default="", repr=False)
    secret_name: str = ""
    transport: httpx.BaseTransport | None = None

    def option(self, name: str, default: str = "") -> str:
        """What was given, or the default."""
        return self.options.get(name) or default

    def client(self, user: str = "", url: str = "") -> PlantClient:
        """An HTTP client of the plant; with `user`, the secret is its password (else a bearer token). Raises
        BadInput where the secret may not be used, or can't be sent.
        """
        egress.check_secret_host(self.secret_name, urlsplit(url or self.url).hostname)
        if not user:
            http_headers.check_header_secret(self.secret_name, self.secret)
        return PlantClient(self.name, url or self.url, self.secret, user=user, transport=self.transport)


@dataclass(frozen=True, kw_only=True)
class InterventionKind:
    """What a person may do at a plant besides setting tasks. title: in words. subject: on what; value: what
    it takes besides ("": nothing). lasting: it is in force until it is undone; else it is done once.
    """

    name: str
    title: str
    subject: str
    value: str = ""
    lasting: bool = True


class HalfUndone(PlantSilent):
    """Of an intervention a part was undone; `left` is what `undo` needs for the rest."""

    def __init__(self, message: str, left: str) -> None:
        super().__init__(message)
        self.left = left


def unusable_section(faults: Sequence[str]) -> Sequence[PlantSection]:
    """Return a table of the measures that nothing can use, where there are any."""
    if not faults:
        return ()
    return [
        PlantSection(
            title="Unusable measures",
            about="unknown to loops and rules until the plant reports a number in range",
            columns=["Measure"],
            rows=[[fault] for fault in faults],
        )
    ]


class Adapter(Elastic):
    """An elastic plant whose client is to be closed. What is here is that of a plant without controllers of
    its own and with nothing more to show. observe_seconds: between two observations; None: as all plants.
    anew_seconds: silent for so long it is made anew, as it connects to where names led when it was made;
    None: it asks for a name each time.
    """

    observe_seconds: float | None = None
    anew_seconds: float | None = None

    def hold(self, seconds: float) -> None:
        """It has no controllers of its own."""

    def release(self) -> None:
        """It has none."""

    def sections(self) -> Sequence[PlantSection]:
        """What its page shows besides operators and tasks: asked each `SECTIONS_SECONDS`, between two
        observations. Raises what `topology` raises.
        """
        return ()

    def groups(self) -> Mapping[str, ConsumerGroup]:
        """The groups of consumers that it has, and how far each is behind, as `topology` saw them last."""
        return {}

    def sensors(self) -> Mapping[str, SensorStatus]:
        """Numbers by name that its last observation, even one that failed, has brought besides."""
        return {}

    def proofs(self) -> Mapping[str, ProofStatus]:
        """Operator → what shows that an order took effect, as `topology` saw it last: where the number of its
        tasks does not.
        """
        return {}

    def revisions(self) -> Mapping[str, str]:
        """What is rolled out of each part, as `topology` saw it last: a change is a mark on the timeline."""
        return {}

    def read_before(self, kind: str, subject: str, value: str, earlier: str = "") -> str:
        """What an intervention (one of `AdapterKind.interventions`) would change, as it is now: `undo` gets
        it. earlier: what this said when the one began that is in force and begins again; what stood before it
        stays what it goes back to. Raises BadInput naming subject or value, and what `topology` raises.
        """
        raise BadInput("kind", "takes none: nothing else can be done at this plant.")

    def set_to(self) -> Mapping[str, int]:
        """Operator → the tasks that the plant itself aims at, as `topology` saw it last: where it says so
        beside those that are there.
        """
        return {}

    def lives(self) -> Mapping[str, float]:
        """Operator → since when it is at work at least (s since 1970), as `topology` saw it last, where the
        plant says so. One that was started anew is another one: what was ordered before is not of it.
        """
        return {}

    def completions(self) -> Mapping[str, PoolSamples]:
        """Operator → what its pool completed while all of its tasks had work, as `topology` saw it last,
        where each completion is heard of (`AdapterKind.completes`).
        """
        return {}

    def list_missed_workers(self) -> Mapping[str, float]:
        """Worker → for how long it has not answered (s), as `topology` saw it last, where nothing was heard
        of its end.
        """
        return {}

    def list_unserved_queues(self) -> Mapping[str, UnservedQueue]:
        """Queues in which work waits and from which no worker takes, as `topology` saw it last."""
        return {}

    def intervene(self, kind: str, subject: str, value: str) -> None:
        """Do it; doing it again changes nothing. The same raises."""
        raise BadInput("kind", "takes none: nothing else can be done at this plant.")

    def undo(self, kind: str, subject: str, before: str) -> None:
        """Let it be as it was before. The same raises; and HalfUndone where only a part followed."""
        raise BadInput("kind", "takes none: nothing else can be done at this plant.")

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, kw_only=True)
class PlantPace:
    """What loops of parallelism begin with at a plant of a kind. bound_seconds: latency of a path; maximum:
    tasks of an operator; missed_cost: of what comes too late, times its work; pause_seconds, change_seconds:
    what a change stops, and costs besides (task-seconds of all); tick_seconds: between decisions.
    """

    bound_seconds: float
    maximum: int
    missed_cost: float
    pause_seconds: float
    change_seconds: float
    tick_seconds: float


@dataclass(frozen=True, kw_only=True)
class AdapterKind:
    """name: as a registration has it. title: on pages. schemes: of its addresses, each with its usual port,
    which is allowed for it even where the egress policy keeps that port from others; none: it takes no
    address. ports: more of those. secret: what the named variable holds. file: the option that the text of a
    file is, for `weir attach FILE`. steers: whether anything can be set (loops of parallelism are made);
    steers_at: at one registration. example: of an address. patience: by when what was ordered is to be in
    force there, or nearer (`workers.plants.reached`).

    make: an adapter; the plant is not asked yet. inspect: what is there, in words, and what could be steered
    (None: what its topology says). check: a registration's options, beyond what each says by itself. Both
    raise BadInput naming the field.

    let_go_by_hand: what lets the controllers that are held there go on where Weir can't reach it, in a
    sentence; "": none are held.

    pace: how such plants can be steered; None: as any plant, whose rescales are slow and stop it.
    interventions: what people may do there besides. ends_idle: where fewer tasks are ordered, only what is
    idle ends; so what a person orders is ordered again (`repeated_orders`). completes: whether it says when
    each piece of work is completed, so that each of its pools has a loop of concurrency.
    """

    name: str
    title: str
    make: Callable[[PlantAddress], Adapter]
    inspect: Callable[[PlantAddress], FoundPlant] | None = None
    check: Callable[[PlantAddress], None] | None = None
    schemes: Mapping[str, int] = field(default_factory=lambda: dict(WEB_SCHEMES))
    ports: frozenset[int] = frozenset()
    options: Mapping[str, PlantOption] = field(default_factory=dict)
    secret: str = "its token"
    file: str = ""
    example: str = ""
    steers: bool = True
    let_go_by_hand: str = ""
    pace: PlantPace | None = None
    steers_at: Callable[[PlantAddress], bool] | None = None
    patience: Patience = USUAL
    interventions: tuple[InterventionKind, ...] = ()
    ends_idle: bool = False
    completes: bool = False

    def run_inspection(self, address: PlantAddress) -> FoundPlant:
        """What stands there now. Raises PlantSilent, PlantConfused, BadInput; nothing is changed there."""
        if self.inspect is not None:
            return self.inspect(address)
        adapter = self.make(address)
        try:
            return describe_topology(self.title, adapter.topology())
        finally:
            adapter.close()


def describe_topology(what: str, topology: MeasuredTopology, needs: Sequence[str] = ()) -> FoundPlant:
    """A topology as what was found at an address."""
    parts = [
        FoundPart(
            name=operator.name,
            kind=operator.kind,
            tasks=operator.parallelism,
            minimum=operator.minimum,
            maximum=operator.maximum,
            fixed=operator.fixed,
        )
        for operator in topology.operators.values()
    ]
    return FoundPlant(what=what, parts=parts, needs=list(needs))
