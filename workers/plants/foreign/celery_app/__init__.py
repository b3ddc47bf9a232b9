"""A Celery app as a plant: its queues, the pools of its workers, and their tasks."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import redis
from celery import Celery

from common.errors import BadInput
from common.stored_document import replace_fields
from controllers.framework.reason import format_count, format_names
from queues import keys
from workers.coordination.connections import control_server
from workers.coordination.leases import Lease
from workers.documents.plants import FoundPlant
from workers.host import egress
from workers.plants.foreign import interventions as stored_interventions
from workers.plants.foreign.celery_app.broker import (
    SCHEMES,
    Broker,
    RedisBroker,
    create_app,
    create_broker,
    get_virtual_host,
    parse_database_number,
)
from workers.plants.foreign.celery_app.events import EventListener, TaskEvents
from workers.plants.foreign.celery_app.interventions import INTERVENTIONS, PAUSE, RETAINED_SECONDS
from workers.plants.foreign.celery_app.leases import AppLeases, LeaseStore, RabbitLeases, RedisLeases
from workers.plants.foreign.celery_app.plant import ASK, LISTEN, CeleryPlant
from workers.plants.foreign.celery_app.queue_messages import open_messages
from workers.plants.foreign.celery_app.remote_control import RemoteControl
from workers.plants.foreign.celery_app.retry_outlet import open_outlet
from workers.plants.foreign.celery_app.sending import send_task
from workers.plants.foreign.celery_app.task_updates import HistoryFeed
from workers.plants.foreign.celery_app.transport import ANY_SEPARATOR, MAX_OPTION_CHARACTERS, SEPARATORS, read_layout
from workers.plants.foreign.celery_app.transport import OPTION as TRANSPORT_OPTIONS
from workers.plants.foreign.celery_app.workers import ASKED_RETAINED_SECONDS, MISSED_SECONDS
from workers.plants.foreign.group_measures import HELP, OPTION, parse_groups
from workers.plants.foreign.kind import AdapterKind, PlantAddress, PlantPace, declare_option, describe_topology
from workers.plants.foreign.leases import format_holder, get_installation_id, lock_lease, store_tasks_before
from workers.plants.foreign.redaction import HIDDEN, SHOWN
from workers.plants.foreign.stored_notes import ExpiringNotes, StoredNotes
from workers.plants.guard.manifests import GuardManifest, build_celery_manifests
from workers.plants.reached import ConvergenceTimeout
from workers.task_history.recorder import LEASE_SECONDS, TaskRecorder

# A worker sends a heartbeat every two seconds, so by this time it has been heard.
LISTEN_SECONDS = 3.0


def make(address: PlantAddress, is_registered: bool = True) -> CeleryPlant:
    """Build the plant. Raise `PlantUnavailable` if its name doesn't resolve or resolves to a forbidden address.

    is_registered: False for an inspection: neither its workers nor its tasks are stored.
    """
    app, control, name = create_app(address), control_server(), address.name
    shown = address.get_option("arguments", SHOWN)
    history = None
    if is_registered:
        lease = Lease(control, f"tasks:{name}", LEASE_SECONDS)
        history = HistoryFeed(TaskRecorder(name, lease), shown)
    asked = StoredNotes(keys.ASKED_WORKERS.build(name), ASKED_RETAINED_SECONDS, control)
    broker = create_broker(address, app)

    def list_paused_queues() -> set[str]:
        active = stored_interventions.list_active(control, name)
        return {
            intervention.subject
            for intervention in active
            if intervention.kind == PAUSE and intervention.until > time.time()
        }

    return CeleryPlant(
        address,
        RemoteControl(name, app.control.broadcast, app.close),
        broker,
        EventListener(app, TaskEvents(shown), history=history),
        orders=ExpiringNotes(lambda worker: keys.POOL_ORDER.build(name, worker), control),
        resumed=StoredNotes(keys.RESUMED_QUEUES.build(name), RETAINED_SECONDS, control),
        asked=asked,
        known=StoredNotes(keys.KNOWN_WORKERS.build(name), MISSED_SECONDS, control) if is_registered else None,
        paused=list_paused_queues,
        leases=AppLeases(
            create_lease_store(address, app, broker, control),
            store_tasks_before(name, control, time.time),
            asked,
            partial(stored_interventions.list_active, control, name),
            time.time,
        )
        if is_registered
        else None,
        send=partial(send_task, app, name),
    )


def create_lease_store(address: PlantAddress, app: Celery, broker: Broker, control: redis.Redis) -> LeaseStore:
    """Return the lease of a registered app."""

    def format_own_holder() -> str:
        return format_holder(get_installation_id(control), address.name)

    if not isinstance(broker, RedisBroker):
        return RabbitLeases(address.name, app, format_own_holder, partial(lock_lease, control, address.name))

    def load_layout() -> dict[str, Any]:
        with app.connection_or_acquire() as connection:
            channel: Any = connection.default_channel
            layout: dict[str, Any] = channel.describe_layout()
            return layout

    prefix = read_layout(address).prefix
    return RedisLeases(address.name, broker.server, prefix, format_own_holder, load_layout, time.time)


_make_unregistered = partial(make, is_registered=False)


def inspect(
    address: PlantAddress,
    make_plant: Callable[[PlantAddress], CeleryPlant] = _make_unregistered,
    sleep: Callable[[float], None] = time.sleep,
) -> FoundPlant:
    """Return the queues and pools, and whether remote control and events answer; change nothing.

    Raise what `get_topology` raises.
    """
    plant = make_plant(replace(address, options={**address.options, "events": LISTEN}))
    try:
        plant.get_topology()
        sleep(LISTEN_SECONDS)
        topology = plant.get_topology()
        workers = [operator for operator in topology.operators.values() if operator.kind == "operator"]
        queues = len(topology.operators) - len(workers)
        processes = sum(worker.parallelism for worker in workers)
        app = f"{format_count(queues, 'queue')}, {format_count(len(workers), 'worker')}"
        what = f"A Celery app: {app} with {processes} process{'' if processes == 1 else 'es'}."
        silent = plant.list_workers_without_events()
        if not silent or address.get_option("events", ASK) != ASK:
            return describe_topology(what, topology, plant.list_missing())
        said = (
            f"Workers that send no task events yet: {format_names(silent)}. When the app is added, Weir enables"
            " their task events until it disconnects (option events)."
        )
        return replace_fields(describe_topology(what, topology, plant.list_missing(without_events=())), said=[said])
    finally:
        plant.close()


def check(address: PlantAddress) -> None:
    """Raise `BadInput` for invalid options. Which workers there will be is unknown at this point."""
    parse_groups(address.get_option(OPTION))
    if address.url.startswith("redis"):
        read_layout(address)
        parse_database_number(get_virtual_host(address))
    elif address.get_option(TRANSPORT_OPTIONS):
        raise BadInput(TRANSPORT_OPTIONS, "applies to Redis only. Remove it.")
    management = address.get_option("management")
    if management and egress.check_url(management, "management").query:
        raise BadInput("management", "must be an address without a query. Weir sends the secret with each request.")


def build_guard(address: PlantAddress) -> Sequence[GuardManifest]:
    """Return the guard of an app on Redis or Valkey. RabbitMQ needs none."""
    if not address.url.startswith("redis"):
        return ()
    return build_celery_manifests(address.url, address.get_option("user"), read_layout(address).prefix)


ADAPTER = AdapterKind(
    name="celery",
    title="Celery app, through its broker and remote control",
    schemes=SCHEMES,
    ports=frozenset(SCHEMES.values()),
    example="redis://redis.example:6379/0",
    options=(
        declare_option("user", "username at the broker; empty for none (Redis) or guest (RabbitMQ)"),
        declare_option(
            "queues", "additional queues to observe, besides the queues that workers consume, separated by commas"
        ),
        declare_option(
            "events",
            "whether Weir enables task events on workers that send none, until it disconnects",
            choices=(ASK, LISTEN),
            default=ASK,
        ),
        declare_option(
            "arguments",
            "task arguments: shown without recognizable secrets, or hidden",
            choices=(SHOWN, HIDDEN),
            default=SHOWN,
        ),
        declare_option(OPTION, HELP),
        declare_option(
            "management", "address of RabbitMQ's management plugin, for the number of unacknowledged messages"
        ),
        declare_option("prefix", "prefix of all keys (global_keyprefix); Redis only"),
        declare_option(
            "separator",
            "separator between queue and priority (sep): `usual` (Celery's default), `:`, or `any` (both); Redis only",
            choices=tuple(SEPARATORS),
            default=ANY_SEPARATOR,
        ),
        declare_option(
            TRANSPORT_OPTIONS,
            'broker_transport_options of the app, in JSON, such as {"sep": ":"}; Redis only',
            "Transport options",
            most=MAX_OPTION_CHARACTERS,
        ),
    ),
    make=make,
    check=check,
    interventions=INTERVENTIONS,
    # A pool changes size while it works, so a change costs next to nothing, and waiting tasks have waiting users.
    pace=PlantPace(
        bound_seconds=1.0, maximum=16, missed_cost=50.0, pause_seconds=0.0, change_seconds=1.0, tick_seconds=2.0
    ),
    # Celery forks processes every five seconds, and takes seconds longer on a busy host. Only idle processes end, so a
    # pool shrinks when its tasks have ended: within an hour, the time that Redis gives a task by default.
    patience=ConvergenceTimeout(more_seconds=30.0, fewer_seconds=3_600.0),
    ends_idle=True,
    completes=True,
    open_retry_outlet=open_outlet,
    open_messages=open_messages,
    starts_tasks=True,
    revokes_tasks=True,
    inspect=inspect,
    build_guard=build_guard,
)
