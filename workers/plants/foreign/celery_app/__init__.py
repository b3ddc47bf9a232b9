"""A Celery app as a plant: its queues, the pools of its workers, and their tasks."""

from functools import partial

from common.errors import BadInput
from workers.coordination.connections import control_server
from workers.host import egress
from workers.plants.foreign.celery_app.asking.asked_workers import SharedAskedWorkers
from workers.plants.foreign.celery_app.asking.late_workers import SharedInterventions
from workers.plants.foreign.celery_app.broker import (
    SCHEMES,
    create_app,
    create_broker,
    get_virtual_host,
    parse_database_number,
)
from workers.plants.foreign.celery_app.interventions import INTERVENTIONS
from workers.plants.foreign.celery_app.known_workers import KnownWorkers, OwnKnownWorkers, SharedKnownWorkers
from workers.plants.foreign.celery_app.listener import EventListener
from workers.plants.foreign.celery_app.orders import SharedOrders
from workers.plants.foreign.celery_app.port.inspection import inspect
from workers.plants.foreign.celery_app.port.plant import ASK, LISTEN, CeleryPlant
from workers.plants.foreign.celery_app.remote_control import RemoteControl
from workers.plants.foreign.celery_app.resumed_queues import SharedResumedQueues
from workers.plants.foreign.celery_app.task_events import TaskEvents
from workers.plants.foreign.celery_app.transport.redis_layout import (
    ANY_SEPARATOR,
    MAX_OPTION_CHARACTERS,
    SEPARATORS,
    read_layout,
)
from workers.plants.foreign.celery_app.transport.redis_layout import OPTION as TRANSPORT_OPTIONS
from workers.plants.foreign.group_measures import HELP, OPTION, parse_groups
from workers.plants.foreign.kind import AdapterKind, PlantAddress, PlantOption, PlantPace
from workers.plants.foreign.redaction import HIDDEN, SHOWN
from workers.plants.reached import ConvergenceTimeout


def make(address: PlantAddress) -> CeleryPlant:
    """Build the plant. Raise `PlantUnavailable` if its name doesn't resolve or resolves to a forbidden address."""
    return _build_adapter(address, SharedKnownWorkers(control_server(), address.name))


def _build_unregistered(address: PlantAddress) -> CeleryPlant:
    """Build a plant for an inspection only: nothing about it is stored."""
    return _build_adapter(address, OwnKnownWorkers())


def _build_adapter(address: PlantAddress, known: KnownWorkers) -> CeleryPlant:
    app = create_app(address)
    return CeleryPlant(
        address,
        RemoteControl(address.name, app.control.broadcast, app.close),
        create_broker(address, app),
        EventListener(app, TaskEvents(address.get_option("arguments", SHOWN))),
        SharedOrders(control_server(), address.name),
        resumed=SharedResumedQueues(control_server(), address.name),
        asked=SharedAskedWorkers(control_server(), address.name),
        in_force=SharedInterventions(control_server(), address.name),
        known=known,
    )


def check(address: PlantAddress) -> None:
    """Raise `BadInput` for invalid options. Which workers there will be is unknown at this point."""
    parse_groups(address.get_option(OPTION))
    if address.url.startswith("redis"):
        read_layout(address)
        parse_database_number(get_virtual_host(address))
    elif address.get_option(TRANSPORT_OPTIONS):
        raise BadInput(TRANSPORT_OPTIONS, "applies to Redis only; remove it.")
    management = address.get_option("management")
    if management and egress.check_url(management, "management").query:
        raise BadInput("management", "must be an address without a query; Weir sends the secret with each request.")


ADAPTER = AdapterKind(
    name="celery",
    title="Celery app, through its broker and remote control",
    schemes=SCHEMES,
    ports=frozenset(SCHEMES.values()),
    example="redis://redis.example:6379/0",
    secret="the broker's password",
    options={
        "user": PlantOption("username at the broker; empty for none (Redis) or guest (RabbitMQ)"),
        "queues": PlantOption(
            "additional queues to observe, besides the queues that workers consume, separated by commas"
        ),
        "events": PlantOption(
            "whether Weir enables task events on workers that send none, until it disconnects",
            choices=(ASK, LISTEN),
            default=ASK,
        ),
        "arguments": PlantOption(
            "task arguments: shown without recognizable secrets, or hidden", choices=(SHOWN, HIDDEN), default=SHOWN
        ),
        OPTION: PlantOption(HELP),
        "management": PlantOption("address of RabbitMQ's management plugin, for the number of unacknowledged messages"),
        "prefix": PlantOption("prefix of all keys (global_keyprefix); Redis only"),
        "separator": PlantOption(
            "separator between queue and priority (sep): `usual` (Celery's default), `:`, or `any` (both); Redis only",
            choices=tuple(SEPARATORS),
            default=ANY_SEPARATOR,
        ),
        TRANSPORT_OPTIONS: PlantOption(
            'broker_transport_options of the app, in JSON, such as {"sep": ":"}; Redis only',
            "Transport options",
            longest=MAX_OPTION_CHARACTERS,
        ),
    },
    make=make,
    check=check,
    interventions=INTERVENTIONS,
    # A pool changes size while it works, so a change costs next to nothing, and waiting tasks have waiting
    # users.
    pace=PlantPace(
        bound_seconds=1.0, maximum=16, missed_cost=50.0, pause_seconds=0.0, change_seconds=1.0, tick_seconds=2.0
    ),
    # Celery forks processes every five seconds, and takes seconds longer on a busy host. Only idle processes
    # end, so a pool shrinks when its tasks have ended: within an hour, the time that Redis gives a task by
    # default.
    patience=ConvergenceTimeout(more_seconds=30.0, fewer_seconds=3_600.0),
    ends_idle=True,
    completes=True,
    inspect=partial(inspect, make=_build_unregistered),
)
