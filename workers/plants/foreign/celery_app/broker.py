"""The broker of a Celery app: how it is reached, and how long its queues are.

Redis (Valkey) stores a queue as one list for each priority (`transport`). A key that is not a list is not
a queue: an app may store its own data as `orders:1`. Tasks that workers have taken and not acknowledged are in
`unacked`, for all queues together. RabbitMQ reports how many messages are ready and how many consumers there are. Only
its management plugin reports how many messages are unacknowledged and how many were published.
"""

import ssl
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import quote

import httpx
import redis
from amqp.exceptions import AMQPError, NotFound
from celery import Celery
from kombu.exceptions import OperationalError
from kombu.utils.url import url_to_parts
from redis.connection import Connection, SSLConnection

from common.errors import BadInput, describe_connection_error
from common.parsing import parse_digits
from workers.host import egress
from workers.plants.foreign import redis_client
from workers.plants.foreign.answer_limit import answer_seconds
from workers.plants.foreign.celery_app.transport import AmqpTransport, RedisTransport, count_of, read_layout
from workers.plants.foreign.kind import PlantAddress
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

SCHEMES: Mapping[str, int] = {"redis": 6379, "rediss": 6379, "amqp": 5672, "amqps": 5671}
NO_LIST = "WRONGTYPE"
MAX_DATABASE_DIGITS = 5
MAX_QUEUES = 200  # queues of an app: each is requested once per second
TLS = ("rediss", "amqps")
TRANSPORTS: Mapping[str, str] = {
    "redis": f"{RedisTransport.__module__}:{RedisTransport.__name__}",
    "amqp": f"{AmqpTransport.__module__}:{AmqpTransport.__name__}",
}
FAILURES = (OSError, OperationalError, AMQPError, redis.RedisError)


@dataclass(frozen=True)
class QueueLength:
    """The length of a queue.

    waiting: messages that no worker has taken; priorities: those messages by priority, if there are several;
    unacknowledged: messages that were taken and are perhaps being processed. None: unknown.
    """

    waiting: int
    priorities: Mapping[int, int] = field(default_factory=dict)
    consumers: int | None = None
    unacknowledged: int | None = None


class Broker(Protocol):
    """The broker that has the queues. Its methods raise `PlantUnavailable` and `InvalidPlantResponse`."""

    def read_queue_lengths(self, queues: Iterable[str]) -> dict[str, QueueLength]:
        """Return the lengths of those queues that exist."""
        ...

    def count_unacknowledged(self) -> int | None:
        """Return the unacknowledged messages of all queues, or None if unknown or known only per queue."""
        ...

    def list_missing(self) -> list[str]:
        """Return a message for each figure that was not available when lengths were last requested."""
        ...

    def close(self) -> None: ...


def create_broker(address: PlantAddress, app: Celery) -> Broker:
    """Return the broker. Raise `PlantUnavailable` if its name doesn't resolve, or to a forbidden address."""
    return RedisBroker(address) if address.url.startswith("redis") else AmqpBroker(address, app)


def create_app(address: PlantAddress) -> Celery:
    """Return a client of the app, not connected yet, that knows no tasks and reads only JSON.

    Raise `PlantUnavailable` as `resolve_host` does.
    """
    url = egress.check_url(address.url, schemes=SCHEMES, ports=frozenset(SCHEMES.values()))
    is_redis, is_tls = url.scheme.startswith("redis"), url.scheme in TLS
    port = url.port or SCHEMES[url.scheme]
    host, (user, password) = resolve_host(url.host, port, is_tls), get_login(address)
    host = f"[{host}]" if ":" in host else host
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    host_name = get_virtual_host(address)
    place = quote(str(parse_database_number(host_name)) if is_redis else host_name, safe="")
    if is_redis:
        tls: dict[str, Any] = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
        timeouts = ("socket_timeout", "socket_connect_timeout")
        layout = read_layout(address).build_kombu_options()
    else:
        tls = {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": url.host}
        timeouts, layout = ("read_timeout", "write_timeout"), {}
    app = Celery(address.name, set_as_current=False, fixups=[])
    app.conf.update(
        broker_transport=TRANSPORTS["redis" if is_redis else "amqp"],
        broker_url=f"{'redis' if is_redis else 'amqp'}://{login}{host}:{port}/{place}",
        broker_use_ssl=tls if is_tls else False,
        broker_connection_timeout=answer_seconds(),
        broker_connection_retry=False,
        broker_connection_max_retries=0,
        broker_transport_options={**dict.fromkeys(timeouts, answer_seconds()), "max_retries": 0, **layout},
        accept_content=["json"],
        event_serializer="json",
    )
    control: Any = app.control  # Celery's type stubs omit the mailbox.
    control.mailbox.unclaimed = LateAnswers()
    return app


class LateAnswers(dict[str, deque[Any]]):
    """A mailbox that discards late answers to earlier requests.

    kombu keeps them until they are requested, which never happens. A worker that is always late would use hundreds of
    megabytes per day.
    """

    def __missing__(self, question: str) -> deque[object]:
        return deque(maxlen=0)


def get_login(address: PlantAddress) -> tuple[str, str]:
    """Return the user and password; those of a default RabbitMQ installation if none are given."""
    usual = "" if address.url.startswith("redis") else "guest"
    return address.get_option("user", usual), address.secret or usual


def get_virtual_host(address: PlantAddress) -> str:
    """Return the database of Redis or the virtual host of RabbitMQ as kombu reads it: `//prod` is `/prod`."""
    path: str | None = url_to_parts(address.url).path
    return path or ("0" if address.url.startswith("redis") else "/")


def parse_database_number(virtual_host: str) -> int:
    """Return the number of a Redis database, as kombu reads it. Raise `BadInput` if it is not a number."""
    text = virtual_host.removeprefix("/") or "0"
    number = parse_digits(text, MAX_DATABASE_DIGITS)
    if number is None:
        raise BadInput("url", f"must have the number of a database after its host, not {text[:40]!r}.")
    return number


def resolve_host(host: str, port: int, is_tls: bool) -> str:
    """Return the host to connect to: a checked address.

    With TLS, return the name: its certificate is checked, so no other server can answer under it. Raise
    `PlantUnavailable` if the name doesn't resolve or resolves to a forbidden address.
    """
    try:
        addresses = egress.resolve_allowed_addresses(host, port, ports=frozenset(SCHEMES.values()))
    except OSError as error:
        raise PlantUnavailable(f"{error}") from None
    return host if is_tls else addresses[0]


@contextmanager
def convert_redis_errors(name: str) -> Iterator[None]:
    """Convert the errors of requests to an app's Redis to `InvalidPlantResponse` and `PlantUnavailable`."""
    try:
        yield
    except redis.ResponseError as error:
        raise InvalidPlantResponse(f"{name} rejected the request: {error}.") from None
    except (redis.RedisError, OSError) as error:
        raise PlantUnavailable(f"{name} can't be reached ({describe_connection_error(error)}).") from None


class RedisBroker:
    """Redis or Valkey."""

    def __init__(self, address: PlantAddress) -> None:
        self._name, self._layout = address.name, read_layout(address)
        url, (user, password) = httpx.URL(address.url), get_login(address)
        is_tls, port = url.scheme in TLS, url.port or SCHEMES[url.scheme]
        self.server = redis_client.create_client(
            SSLConnection if is_tls else Connection,
            host=resolve_host(url.host, port, is_tls),
            port=port,
            db=parse_database_number(get_virtual_host(address)),
            username=user or None,
            password=password or None,
        )

    def read_queue_lengths(self, queues: Iterable[str]) -> dict[str, QueueLength]:
        """Return the lengths of all requested queues: Redis removes a list that is empty."""
        names = list(queues)
        keys = [self._layout.list_queue_keys(name) for name in names]
        counts = iter(self._fetch_counts([("LLEN", key) for of_queue in keys for _, key in of_queue]))
        lengths = {}
        for name, of_queue in zip(names, keys, strict=True):
            counted: dict[int, int] = {}
            for priority, _ in of_queue:
                counted[priority] = counted.get(priority, 0) + next(counts)
            waiting = {priority: count for priority, count in counted.items() if count}
            lengths[name] = QueueLength(sum(waiting.values()), waiting if len(waiting) > 1 else {})
        return lengths

    def count_unacknowledged(self) -> int | None:
        return self._fetch_counts([("HLEN", self._layout.unacknowledged)])[0]

    def list_missing(self) -> list[str]:
        """Return nothing: Redis never reports the figures that are missing for each queue."""
        return []

    def close(self) -> None:
        self.server.close()

    def _fetch_counts(self, commands: Sequence[tuple[str, str]]) -> list[int]:
        """Return the count of each command, or 0 if the key is not a list."""
        with convert_redis_errors(self._name):
            pipeline = self.server.pipeline(transaction=False)
            for command, key in commands:
                pipeline.llen(key) if command == "LLEN" else pipeline.hlen(key)
            answers = pipeline.execute(raise_on_error=False)
        counts = []
        for answer in answers:
            is_refusal = isinstance(answer, redis.ResponseError)
            if is_refusal and not str(answer).startswith(NO_LIST):
                raise InvalidPlantResponse(f"{self._name} rejected the request: {answer}.")
            if (count := 0 if is_refusal else count_of(answer)) is None:
                raise InvalidPlantResponse(f"{self._name} returned an invalid queue length.")
            counts.append(count)
        return counts


class AmqpBroker:
    """RabbitMQ, read by passive declaration, and by its management plugin if its address is known."""

    def __init__(self, address: PlantAddress, app: Celery) -> None:
        self._name, self._host, self._app = address.name, get_virtual_host(address), app
        management = address.get_option("management")
        self._management = (
            address.create_client(user=address.get_option("user", "guest"), url=management) if management else None
        )
        self._without_management = ""

    def read_queue_lengths(self, queues: Iterable[str]) -> dict[str, QueueLength]:
        declared = {name: length for name in queues if (length := self._declare_passively(name)) is not None}
        self._without_management = ""
        return {name: self._add_management_figures(name, length) for name, length in declared.items()}

    def list_missing(self) -> list[str]:
        """Return a message if the management plugin does not answer."""
        return [self._without_management] if self._without_management else []

    def count_unacknowledged(self) -> int | None:
        return None

    def close(self) -> None:
        if self._management is not None:
            self._management.close()

    def _declare_passively(self, queue: str) -> QueueLength | None:
        try:
            with self._app.connection_or_acquire() as connection:
                channel: Any = connection.channel()
                try:
                    answer = channel.queue_declare(queue=queue, passive=True)
                finally:
                    with suppress(*FAILURES):
                        channel.close()
        except NotFound:
            return None
        except AMQPError as error:
            raise InvalidPlantResponse(f"{self._name} rejected the request: {error}.") from None
        except FAILURES as error:
            raise PlantUnavailable(f"{self._name} can't be reached ({describe_connection_error(error)}).") from None
        return QueueLength(int(answer.message_count), consumers=int(answer.consumer_count))

    def _add_management_figures(self, queue: str, declared: QueueLength) -> QueueLength:
        """Add the figures of the management plugin to the length.

        If the plugin does not answer, only these figures are unknown. It is then not asked about the other queues,
        because each request might wait for it.
        """
        if self._management is None or self._without_management:
            return declared
        try:
            status, row = self._management.ask(
                "GET", f"api/queues/{quote(self._host, safe='')}/{quote(queue, safe='')}"
            )
            why = "" if status == 200 and isinstance(row, dict) else f"it rejected the request ({status})"
        except (PlantUnavailable, InvalidPlantResponse) as error:
            row, why = None, str(error).rstrip(".")
        if why or not isinstance(row, dict):
            self._without_management = (
                f"Unacknowledged tasks are unknown, because the management plugin did not report them: {why}."
            )
            return declared
        return replace(declared, unacknowledged=count_of(row.get("messages_unacknowledged")))
