"""Leases at a Celery app: what Weir has set there, and how its broker ends it if Weir vanishes.

**Redis and Valkey** can't send a message at a later time. The lease is a field of the hash `weir.leases` in the app's
database, with the commands that restore everything. The guard (`workers.plants.guard`) reads it there.

**RabbitMQ** needs no guard. The commands are messages for Celery's remote control. They lie in a queue whose messages
expire after the duration of the lease, and whose dead-letter exchange is that of remote control. Weir replaces them in
a transaction before they expire. If it doesn't, the broker sends them to the workers. A command can't name a final
size of a pool, and a worker may have been restarted in the meantime. So a smaller pool grows again, and a larger one
stays: ending too many processes could stop a worker. An order to resize a pool is sent in the transaction of its lease.
Otherwise, a lease of a Weir that vanished between the two would not fit the pool.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import redis
from celery import Celery
from kombu import Producer

from common.errors import describe_connection_error
from workers.documents.plants import GuardStatus, SetValue
from workers.plants.foreign.celery_app import transport
from workers.plants.foreign.celery_app.broker import FAILURES
from workers.plants.foreign.celery_app.interventions import LIMIT, NO_LIMIT, PAUSE, REVOKE
from workers.plants.foreign.interventions import Intervention
from workers.plants.foreign.kind import RestoredValue
from workers.plants.foreign.leases import WITHOUT_GUARD, TasksBefore, format_tasks, lease_seconds
from workers.plants.foreign.stored_notes import StoredNotes
from workers.plants.guard.weir_guard import GUARD, LEASES, POLL_SECONDS
from workers.plants.plant import PlantUnavailable

QUEUE_RETAINED_SECONDS = 3_600  # an unused lease queue of RabbitMQ is removed by the broker after this time
MAX_MESSAGES = 1_000
ORDER_SECONDS = 0.001  # the shortest time after which a message expires
GUARD_NAME, BROKER = "guard", "broker"
EVENTS = "events"  # kind of a restored value: task events are off again
LARGER_POOL = (
    "RabbitMQ can't shrink it safely. This is harmless: the worker keeps more processes, and their memory, until it is"
    " restarted or Weir is back."
)
Item = dict[str, Any]  # a command {method, arguments, workers}, or a pool {pool, processes, tasks, at}
Document = dict[str, Any]


class LeaseStore(Protocol):
    """The lease of one plant at its broker. Its methods raise `PlantUnavailable` if the broker does not answer."""

    restored_by: str
    sends_orders: bool  # whether the store can change the lease and send a command to workers in one step

    def replace(self, items: Sequence[Item], order: Item | None = None) -> list[Item]:
        """Make these the items of the lease, valid from now on. Return the former items that were carried out.

        order: a command that is sent in the same step, if the store `sends_orders`.
        """
        ...

    def read_guard(self) -> GuardStatus | None:
        """Return the guard; None: the broker needs none."""
        ...


class MemoryLeases:
    """A lease in this process, for inspections and tests. `expire` carries it out as a guard does."""

    restored_by = GUARD_NAME
    sends_orders = False

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.guard: GuardStatus | None = GuardStatus(alive=True)
        self._restored: list[Item] = []

    def replace(self, items: Sequence[Item], order: Item | None = None) -> list[Item]:
        restored, self._restored = self._restored, []
        self.items = list(items)
        return restored

    def read_guard(self) -> GuardStatus | None:
        return self.guard

    def expire(self) -> list[Item]:
        """End the lease; return its items, to be carried out."""
        self._restored, self.items = self.items, []
        return self._restored


class RedisLeases:
    """The lease in the database of Redis or Valkey. client: of that database, closed by its owner."""

    restored_by = GUARD_NAME
    sends_orders = False

    def __init__(
        self,
        name: str,
        client: redis.Redis,
        prefix: str,
        holder: Callable[[], str],
        load_layout: Callable[[], Document],
        clock: Callable[[], float],
    ) -> None:
        self._name, self._client, self._holder, self._load_layout = name, client, holder, load_layout
        self._clock = clock
        self._leases, self._guard = f"{prefix}{LEASES}", f"{prefix}{GUARD}"
        self._error = ""

    def replace(self, items: Sequence[Item], order: Item | None = None) -> list[Item]:
        holder = self._holder()
        try:
            pipeline = self._client.pipeline(transaction=True)
            pipeline.hget(self._leases, holder)
            if items:
                document = {
                    "holder": holder,
                    "seconds": lease_seconds(),
                    "renewed_at": self._clock(),
                    "layout": self._load_layout(),
                    "items": list(items),
                }
                pipeline.hset(self._leases, holder, json.dumps(document))
            else:
                pipeline.hdel(self._leases, holder)
            text = pipeline.execute()[0]
        except redis.ResponseError as error:  # for example, the account may not write this key
            self._error = f"{self._name} rejected the lease: {error}."
            return []
        except FAILURES as error:
            raise PlantUnavailable(f"{self._name} can't be reached ({describe_connection_error(error)}).") from None
        self._error = ""
        return list(json.loads(text).get("restored") or []) if text else []

    def read_guard(self) -> GuardStatus:
        try:
            return GuardStatus(alive=bool(self._client.exists(self._guard)), error=self._error)
        except redis.ResponseError as error:
            return GuardStatus(error=self._error or f"{self._name} rejected the request: {error}.")
        except FAILURES as error:
            raise PlantUnavailable(f"{self._name} can't be reached ({describe_connection_error(error)}).") from None


class RabbitLeases:
    """The lease in a queue of RabbitMQ whose expired messages become commands. locked: excludes other processes.

    clock: seconds since 1970.
    """

    restored_by = BROKER
    sends_orders = True

    def __init__(
        self,
        name: str,
        app: Celery,
        holder: Callable[[], str],
        locked: Callable[[], Any],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._name, self._app, self._holder, self._locked, self._clock = name, app, holder, locked, clock

    def replace(self, items: Sequence[Item], order: Item | None = None) -> list[Item]:
        """Replace the messages in one transaction: RabbitMQ has either the former or the new ones.

        While they are read, the former ones are not acknowledged. They return to the queue if this process dies. An
        order is a message that expires at once.
        """
        commands = list_commands(items)
        try:
            with self._locked(), self._app.connection_or_acquire() as connection:
                channel: Any = connection.channel()
                try:
                    return self._replace(channel, commands, order)
                finally:
                    with suppress(*FAILURES):
                        channel.close()
        except FAILURES as error:
            raise PlantUnavailable(f"{self._name} can't be reached ({describe_connection_error(error)}).") from None

    def _replace(self, channel: Any, commands: Sequence[Item], order: Item | None) -> list[Item]:
        queue = f"weir.lease.{self._holder()}"
        arguments = {"x-dead-letter-exchange": transport.WORKERS_EXCHANGE, "x-expires": 1_000 * QUEUE_RETAINED_SECONDS}
        if not commands and order is None:
            channel.queue_delete(queue)
            return []
        channel.queue_declare(queue, durable=True, auto_delete=False, arguments=arguments)
        channel.tx_select()
        producer, count, last = Producer(channel, auto_declare=False), 0, None
        while count < MAX_MESSAGES and (former := channel.basic_get(queue)) is not None:
            count, last = count + 1, former.delivery_tag
        # A command that was carried out is not sent again: another `pool_grow` would make the pool too large.
        expired = [] if count else select_expired(commands, self._clock())
        commands = [command for command in commands if command not in expired]
        # The order is first, because messages expire only at the head of the queue.
        messages = [(command, lease_seconds()) for command in commands]
        for message, seconds in [*([] if order is None else [(order, ORDER_SECONDS)]), *messages]:
            producer.publish(
                message, exchange="", routing_key=queue, serializer="json", delivery_mode=2, expiration=seconds
            )
        if last is not None:
            channel.basic_ack(last, multiple=True)
        channel.tx_commit()
        return expired

    def read_guard(self) -> None:
        return None


class AppLeases:
    """Everything that Weir has set at one app.

    load_interventions: those in force. sizes: worker → its processes before Weir. asked: workers whose task events Weir
    has enabled, as in `EventRequests`.
    """

    def __init__(
        self,
        store: LeaseStore,
        sizes: TasksBefore,
        asked: StoredNotes,
        load_interventions: Callable[[], Iterable[Intervention]],
        clock: Callable[[], float],
    ) -> None:
        self.store, self.sizes, self._asked, self._load_interventions = store, sizes, asked, load_interventions
        self._clock = clock

    def renew(self, order: Item | None = None) -> list[RestoredValue]:
        """Write the lease anew; return what was restored since the last time. Raise `PlantUnavailable`.

        order: as in `LeaseStore.replace`.
        """
        active = list(self._load_interventions())
        items = [*_build_commands(active), *self._build_pools(), *self._build_event_commands()]
        restored = self.store.replace(items) if order is None else self.store.replace(items, order)
        if self.store.restored_by == BROKER:
            restored = select_expired(restored, self._clock())
        values = [value for item in restored for value in _name_restored(item, active)]
        self.sizes.forget([value.operator for value in values if value.operator])
        return values

    def list_set_values(self) -> list[SetValue]:
        """Return what Weir has set, and what restores it. Raise `PlantUnavailable`."""
        guard = self.store.read_guard()
        restored: Document = {"restored_by": self.store.restored_by, "within_seconds": lease_seconds()}
        if guard is not None:
            restored["within_seconds"] += POLL_SECONDS
            if not guard.alive or guard.error:
                restored = {"stays": f"{guard.error or WITHOUT_GUARD}"}
        values = [_describe_intervention(each, restored) for each in self._load_interventions() if each.kind != REVOKE]
        for worker, note in self.sizes.load_changed().items():
            stays = self.store.restored_by == BROKER and note["tasks"] > note["before"]
            former = format_tasks(note["before"], "process")
            values.append(
                SetValue(
                    item=worker,
                    value=format_tasks(note["tasks"], "process"),
                    afterwards=format_tasks(note["tasks"], "process") if stays or "stays" in restored else former,
                    since=note["at"],
                    **({"stays": LARGER_POOL, "is_harmless": True} if stays else restored),
                )
            )
        if asked := self._asked.load_all():
            stays = "stays" in restored
            harmless = {"stays": "Harmless: nobody reads the events, and the broker drops them.", "is_harmless": True}
            values.append(
                SetValue(
                    item=f"task events of {len(asked)} worker{'' if len(asked) == 1 else 's'}",
                    value="on",
                    afterwards="on" if stays else "off",
                    **(harmless if stays else restored),
                )
            )
        return values

    def _build_pools(self) -> list[Item]:
        return [
            {
                "pool": worker,
                "processes": note["before"],
                "tasks": note["tasks"],
                "at": note["at"],
                "set_at": note["set_at"],
            }
            for worker, note in self.sizes.load_all().items()
        ]

    def _build_event_commands(self) -> list[Item]:
        asked = {worker: note["at"] for worker, note in self._asked.load_all().items()}
        return [{"method": "disable_events", "arguments": {}, "workers": asked}] if asked else []


def select_expired(commands: Sequence[Item], now: float) -> list[Item]:
    """Return the commands that the broker has carried out. The queue was empty: those that are old enough."""
    return [command for command in commands if now - command["at"] > lease_seconds()]


def _build_commands(active: Iterable[Intervention]) -> Iterator[Item]:
    """Return the commands that undo interventions. Workers with the same former value get one command."""
    for intervention in active:
        if intervention.kind == REVOKE:
            continue
        noted: Mapping[str, tuple[str, float]] = json.loads(intervention.before)
        for former in dict.fromkeys(was for was, _ in noted.values()):
            workers = {worker: at for worker, (was, at) in noted.items() if was == former}
            if intervention.kind == PAUSE:
                yield {"method": "add_consumer", "arguments": {"queue": intervention.subject}, "workers": workers}
            else:
                limits = {"task_name": intervention.subject, "rate_limit": former or NO_LIMIT}
                yield {"method": "rate_limit", "arguments": limits, "workers": workers}


def list_commands(items: Iterable[Item]) -> list[Item]:
    """Return the items as messages of Celery's remote control; `at` is of no meaning to Celery."""
    commands: list[Item] = []
    for item in items:
        if "pool" not in item:
            workers = item["workers"]
            message = {"method": item["method"], "arguments": item["arguments"], "destination": list(workers)}
            commands.append({**message, "at": max(workers.values())})
        elif (more := item["processes"] - item["tasks"]) > 0:
            message = {"method": "pool_grow", "arguments": {"n": more}, "destination": [item["pool"]]}
            commands.append({**message, "at": item["set_at"]})
    return commands


def _name_restored(item: Item, active: Iterable[Intervention]) -> Iterator[RestoredValue]:
    """Return what a restored item was."""
    arguments = item.get("arguments", {})
    if "pool" in item:
        yield RestoredValue(operator=item["pool"])
    elif item["method"] == "pool_grow":
        yield RestoredValue(operator=item["destination"][0])
    elif item["method"] == "disable_events":
        yield RestoredValue(kind=EVENTS)
    else:
        kind, subject = (PAUSE, arguments.get("queue")) if "queue" in arguments else (LIMIT, arguments.get("task_name"))
        if any(intervention.kind == kind and intervention.subject == subject for intervention in active):
            yield RestoredValue(kind=kind, subject=str(subject))


def _describe_intervention(intervention: Intervention, restored: Document) -> SetValue:
    former = {was for was, _ in json.loads(intervention.before).values()}
    if intervention.kind == PAUSE:
        item, value, before = f"queue {intervention.subject}", "paused", "consumed"
    else:
        item, value = f"rate limit of {intervention.subject}", intervention.value
        before = (former.pop() or "no limit") if len(former) == 1 else "as before, by worker"
    return SetValue(
        item=item, value=value, afterwards=value if "stays" in restored else before, by=intervention.by, **restored
    )
