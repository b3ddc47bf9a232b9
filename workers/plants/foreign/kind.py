"""A kind of attached plant: what an adapter declares, in one value of its module, `ADAPTER`.

`workers.plants.foreign.adapters` finds it; pages, API, commands, and the check of a registration follow it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx

from common.errors import BadInput
from common.parameter import Parameter
from controllers.parallelism.measured_topology import MeasuredTopology
from workers.documents.plants import (
    FoundPart,
    FoundPlant,
    GuardStatus,
    PlantSection,
    PlantStatus,
    SensorStatus,
    SetValue,
)
from workers.host import egress
from workers.plants.foreign.client import PlantClient
from workers.plants.foreign.leases import TasksBefore
from workers.plants.foreign.queue_messages import QueueMessages
from workers.plants.foreign.retry_outlet import RetryOutlet
from workers.plants.guard.manifests import GuardManifest
from workers.plants.plant import ElasticPlant, PlantUnavailable
from workers.plants.reached import USUAL, ConvergenceTimeout

WEB_SCHEMES: Mapping[str, int] = {"http": 80, "https": 443}
MAX_OPTION = 200
SECTIONS_SECONDS = 10.0
KEEPS_TASKS = (
    "Harmless: the plant keeps working with these tasks until somebody changes them. Detaching it restores the former"
    " number."
)
MAX_POOLS = 20  # first pools of a plant, by name, that have a concurrency loop


def declare_option(
    name: str, help: str, title: str = "", *, choices: tuple[str, ...] = (), most: int = MAX_OPTION, **more: Any
) -> Parameter:
    """Return an option of a kind besides its address: a text of at most `most` characters, or one of `choices`.

    default: the meaning of an empty value. The rest is as in `Parameter`.
    """
    kind: Literal["choice", "text"] = "choice" if choices else "text"
    return Parameter(name, "", help, kind=kind, choices=choices, most=most, title=title or name.capitalize(), **more)


@dataclass(frozen=True, kw_only=True)
class PlantAddress:
    """The checked address of a plant: the input for making an adapter.

    secret: the value of the environment variable `secret_name`, "" for none. transport: one other than that of the
    egress policy, for tests.
    """

    name: str
    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    secret: str = field(default="", repr=False)
    secret_name: str = ""
    transport: httpx.BaseTransport | None = None

    def get_option(self, name: str, default: str = "") -> str:
        return self.options.get(name) or default

    def create_client(self, user: str = "", url: str = "") -> PlantClient:
        """Return an HTTP client of the plant; with `user`, the secret is its password (else a bearer token).

        Raise `BadInput` if the secret may not be used there, or can't be sent.
        """
        egress.check_secret_host(self.secret_name, urlsplit(url or self.url).hostname)
        if not user:
            egress.check_header_secret(self.secret_name, self.secret)
        return PlantClient(self.name, url or self.url, self.secret, user=user, transport=self.transport)


@dataclass(frozen=True, kw_only=True)
class InterventionKind:
    """An action, other than setting tasks, that a person may take at a plant.

    title: its name in words. subject: its object; value: a further value ("": none). lasting: it is in force until it
    is undone; else it is done once.
    """

    name: str
    title: str
    subject: str
    value: str = ""
    lasting: bool = True


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """A task that a person starts at a plant.

    id: chosen by Weir, so that the task can be found at the plant. delay_seconds: its earliest start, after now.
    """

    id: str
    name: str
    queue: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    delay_seconds: float = 0.0


class PartialUndo(PlantUnavailable):
    """Only a part of an intervention was undone; `left` is what `undo` needs for the rest."""

    def __init__(self, message: str, left: str) -> None:
        super().__init__(message)
        self.left = left


@dataclass(frozen=True, kw_only=True)
class RestoredValue:
    """A value that was restored at the system when its lease ended: an intervention (kind, subject) or an operator."""

    kind: str = ""
    subject: str = ""
    operator: str = ""


class Adapter(ElasticPlant):
    """An elastic plant whose client has to be closed.

    The defaults are those of a plant without own controllers and without further sections. observe_seconds: interval
    between two observations; None: the usual one. anew_seconds: after this time without an answer the adapter is made
    again, because it keeps the addresses that names had at first; None: it resolves a name for each request.
    tasks_before: the tasks before Weir, of a plant whose tasks can be set.
    """

    observe_seconds: float | None = None
    anew_seconds: float | None = None
    tasks_before: TasksBefore | None = None

    def hold(self, seconds: float) -> None:
        """Do nothing: the plant has no controllers of its own."""

    def release(self) -> None: ...

    def list_sections(self) -> Sequence[PlantSection]:
        """Return the sections of its page besides operators and tasks.

        They are requested every `SECTIONS_SECONDS`, between two observations. Raise what `get_topology` raises.
        """
        return ()

    def get_details(self) -> PlantStatus:
        """Return what it reports besides its topology, as of the last `get_topology`.

        These are the fields `groups`, `revisions`, `proofs`, `set_to`, `lives`, `completions` (of kinds with
        `AdapterKind.completes`), `missed_workers`, `unserved_queues`, `queue_names`, and `task_names`.
        """
        return PlantStatus()

    def get_sensor_statuses(self) -> Mapping[str, SensorStatus]:
        """Return other numbers by name from the last observation, even if that failed."""
        return {}

    def read_before(self, kind: str, subject: str, value: str, earlier: str = "") -> str:
        """Return the current value that an intervention (of `AdapterKind.interventions`) changes, for `undo`.

        earlier: the value returned when the same intervention was started before, if it is still in force; that value
        stays the one to restore. Raise `BadInput`, naming `subject` or `value`, and what `get_topology` raises.
        """
        raise BadInput("kind", "is not available: this plant has no interventions.")

    def intervene(self, kind: str, subject: str, value: str) -> None:
        """Carry out an intervention; repeating it changes nothing. Raise as `read_before` does."""
        raise BadInput("kind", "is not available: this plant has no interventions.")

    def check_task(self, request: TaskRequest) -> None:
        """Raise `BadInput`, naming `task` or `queue`, if the plant would not run this task; start nothing.

        Only of kinds with `AdapterKind.starts_tasks`. Raise what `get_topology` raises.
        """
        raise BadInput("plant", "is of a kind whose tasks Weir can't start. Choose an attached Celery app.")

    def start_task(self, request: TaskRequest) -> None:
        """Send a checked task once.

        Raise `PlantUnavailable` if it is unknown whether the plant got it. It is not sent again then.
        """
        raise BadInput("plant", "is of a kind whose tasks Weir can't start. Choose an attached Celery app.")

    def revoke_tasks(self, task_ids: Sequence[str], terminate: bool) -> None:
        """Keep tasks from starting. terminate: also end those that run. Tasks that ended don't change.

        Only of kinds with `AdapterKind.revokes_tasks`. Raise what `get_topology` raises.
        """
        raise BadInput("plant", "is of a kind whose tasks Weir can't revoke. Choose an attached Celery app.")

    def undo(self, kind: str, subject: str, before: str) -> None:
        """Restore the former value. Raise as `read_before` does, and `PartialUndo` if only a part followed."""
        raise BadInput("kind", "is not available: this plant has no interventions.")

    def check_restored(self, kind: str, subject: str, before: str) -> str:
        """Read the value of an undone intervention at the plant, and return it in words.

        Raise `InvalidPlantResponse` if it differs from the former value, and as `read_before` does.
        """
        raise BadInput("kind", "is not available: this plant has no interventions.")

    def renew_leases(self) -> Sequence[RestoredValue]:
        """Renew the leases of what Weir has set; return what was restored because Weir renewed too late.

        The observer calls this every `leases.renew_seconds`. Raise what `get_topology` raises.
        """
        return ()

    def list_set_values(self) -> Sequence[SetValue]:
        """Return everything that Weir has set here and has not restored, and what becomes of it if Weir vanishes.

        The default is the tasks that Weir has set. Raise what `get_topology` raises.
        """
        return () if self.tasks_before is None else self.tasks_before.list_set_values(KEEPS_TASKS)

    def read_tasks(self, operators: Sequence[str]) -> Mapping[str, int]:
        """Return the current tasks of those operators that exist. Raise what `get_topology` raises."""
        known = self.get_topology().operators
        return {name: known[name].parallelism for name in operators if name in known}

    def end_observation(self) -> Sequence[tuple[str, str]]:
        """Restore what only the observation has set; return each item, and what was read afterwards.

        This is called when the plant is no longer registered. Raise what `get_topology` raises.
        """
        return ()

    def get_guard(self) -> GuardStatus | None:
        """Return the guard, as of the last `list_set_values`; None: this system needs none."""
        return None

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class PlantPace:
    """Initial settings of parallelism loops at plants of a kind.

    bound_seconds: latency of a path; maximum: tasks of an operator; missed_cost: cost of late results, times their
    work; pause_seconds, change_seconds: how long a change stops the plant, and its further cost (task-seconds of all);
    tick_seconds: interval between decisions.
    """

    bound_seconds: float
    maximum: int
    missed_cost: float
    pause_seconds: float
    change_seconds: float
    tick_seconds: float


@dataclass(frozen=True, kw_only=True)
class AdapterKind:
    """A kind of adapter.

    name: its name in a registration. title: its name on pages. schemes: schemes of its addresses, each with its usual
    port, which is allowed even if the egress policy refuses that port to others; empty: it takes no address. ports:
    further ports. file: the option that the text of a file is for, in `weir attach FILE`. steers: whether anything can
    be set (parallelism loops are created); steers_at: the same for one registration. example: of an address. patience:
    by when an order is to take effect there, or come closer (`workers.plants.reached`).

    make: makes an adapter; no request is sent yet. inspect: returns what exists, in words, and what could be controlled
    (None: from its topology). check: checks the options of a registration together. Both raise `BadInput`, naming the
    field.

    let_go_by_hand: how to release controllers that are held there if Weir can't reach the plant, as a sentence; "":
    none are held.

    pace: how such plants can be controlled; None: like any plant, whose rescales are slow and stop it.
    interventions: what people may do there besides. ends_idle: if fewer tasks are ordered, only idle ones end, so a
    person's order is repeated (`repeated_orders`). completes: whether it reports each completion, so that each of its
    pools has a concurrency loop. open_retry_outlet: opens where its tasks are sent again, with a name for what is
    staged there; open_messages: opens the messages of its queues, with the names of known queues. Both raise
    `PlantUnavailable` and `BadInput`.
    build_guard: returns the files that start the guard beside such a system, () if it needs none. starts_tasks: whether
    people can start tasks there (`Adapter.start_task`); revokes_tasks: whether they can revoke several at once
    (`Adapter.revoke_tasks`).
    """

    name: str
    title: str
    make: Callable[[PlantAddress], Adapter]
    inspect: Callable[[PlantAddress], FoundPlant] | None = None
    check: Callable[[PlantAddress], None] | None = None
    schemes: Mapping[str, int] = field(default_factory=lambda: dict(WEB_SCHEMES))
    ports: frozenset[int] = frozenset()
    options: tuple[Parameter, ...] = ()
    file: str = ""
    example: str = ""
    steers: bool = True
    let_go_by_hand: str = ""
    pace: PlantPace | None = None
    steers_at: Callable[[PlantAddress], bool] | None = None
    patience: ConvergenceTimeout = USUAL
    interventions: tuple[InterventionKind, ...] = ()
    ends_idle: bool = False
    completes: bool = False
    open_retry_outlet: Callable[[PlantAddress, str], RetryOutlet] | None = None
    open_messages: Callable[[PlantAddress, Collection[str]], QueueMessages] | None = None
    build_guard: Callable[[PlantAddress], Sequence[GuardManifest]] | None = None
    starts_tasks: bool = False
    revokes_tasks: bool = False

    def run_inspection(self, address: PlantAddress) -> FoundPlant:
        """Return what exists there; change nothing. Raise `PlantUnavailable`, `InvalidPlantResponse`, `BadInput`."""
        if self.inspect is not None:
            return self.inspect(address)
        adapter = self.make(address)
        try:
            return describe_topology(self.title, adapter.get_topology())
        finally:
            adapter.close()


def describe_topology(what: str, topology: MeasuredTopology, needs: Sequence[str] = ()) -> FoundPlant:
    """Return a topology as a description of what was found at an address."""
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
