"""A Kafka cluster by its own protocol: one reading of its topics, groups and offsets. Nothing is changed
there, and no event is read.

librdkafka connects by itself, also to brokers that the cluster names. So each broker is checked by the egress
policy after the first answer and before another is connected to (it connects only to those that it needs).
"""

import fnmatch
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx

from queues.errors import BadInput, connection_reason
from workers.host import egress
from workers.plants.foreign.answer_limit import answer_seconds
from workers.plants.foreign.kafka.reading import (
    UNKNOWN,
    ClusterReading,
    Group,
    GroupReader,
    Offsets,
    Partition,
)
from workers.plants.foreign.kind import PlantAddress
from workers.plants.plant import PlantConfused, PlantSilent

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, OffsetSpec

SCHEMES: Mapping[str, int] = {"kafka": 9092, "kafkas": 9093}  # plain, and TLS
MOST_GROUPS, MOST_PARTITIONS = 200, 4_000
MOST_ANSWER_BYTES = 32 * 2**20  # a cluster says all of its partitions at once
SILENT = (
    "_TRANSPORT",
    "_TIMED_OUT",
    "_ALL_BROKERS_DOWN",
    "_RESOLVE",
    "_TIMED_OUT_QUEUE",
    "REQUEST_TIMED_OUT",
)
IDS_SECONDS = 60.0  # after which ids are asked for again where none came
NO_OFFSET = -1  # less is "none committed"


class KafkaCluster:
    """One cluster. groups, topics: patterns as in a shell (`billing-*`), of what is read; all where
    empty, but for topics that begin with `__`.
    """

    def __init__(
        self,
        address: PlantAddress,
        groups: Sequence[str] = (),
        topics: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name, self._address, self._clock = address.name, address, clock
        self._group_patterns, self._topic_patterns = groups, topics
        self._client: AdminClient | None = None
        self._brokers: set[tuple[str, int]] = set()
        self._ids: dict[str, str] = {}
        self._without_ids_at: float | None = None  # when they were asked for last, and none came
        self._asked: set[Partition] = set()  # whose offsets are read
        self._beyond: set[Partition] = set()  # whose are not, being too many

    def read(self) -> ClusterReading:
        """A reading. Raises PlantSilent and PlantConfused."""
        topics = self._topics()
        names = self._group_names()
        described = self._described(names)
        if not self._asked:
            self._follow(self._committed(names, topics), described, topics)
        offsets, ends_at = self._offsets(), self._clock()
        committed, committed_at = self._committed(names, topics), self._clock()
        groups = {name: self._group(described[name], committed[name], topics) for name in names}
        self._follow(committed, described, topics)
        return ClusterReading(ends_at, committed_at, topics, offsets, groups)

    def ends_at(self, times: Mapping[Partition, float]) -> dict[Partition, int | None]:
        """Of each partition the offset of the first event that came at this time (s since 1970) or later;
        None where there is none. A partition that does not answer is left out.
        """
        from confluent_kafka.admin import OffsetSpec

        specs = {each: OffsetSpec.for_timestamp(round(at * 1000)) for each, at in times.items()}
        found: dict[Partition, int | None] = {}
        for partition, result in self._listed(specs).items():
            # A broker says a time with the offset that it found, and -1 with none.
            found[partition] = result.offset if result.timestamp >= 0 and result.offset >= 0 else None
        return found

    @property
    def left(self) -> int:
        """Partitions that groups read beyond MOST_PARTITIONS, as they were read last."""
        return len(self._beyond)

    def close(self) -> None:
        """Its connections end."""
        self._client = None

    def _group(
        self,
        described: tuple[str, tuple[GroupReader, ...]],
        committed: Mapping[Partition, int],
        topics: "_Topics",
    ) -> Group:
        """Without what is not asked yet: its offsets come with the next reading."""
        state, members = described
        known = {
            each: at for each, at in committed.items() if each in self._asked or not _there(each, topics)
        }
        beyond = len(self._beyond & committed.keys()) if self._beyond else 0
        return Group(state, members, known, beyond)

    def _follow(
        self,
        committed: Mapping[str, Mapping[Partition, int]],
        described: Mapping[str, tuple[str, tuple[GroupReader, ...]]],
        topics: "_Topics",
    ) -> None:
        """The partitions that groups read or have read, of topics that are there."""
        read = {each for offsets in committed.values() for each in offsets}
        read |= {
            each for _, members in described.values() for member in members for each in member.partitions
        }
        there = sorted(each for each in read if _there(each, topics))
        self._asked, self._beyond = set(there[:MOST_PARTITIONS]), set(there[MOST_PARTITIONS:])

    def _topics(self) -> "_Topics":
        """Topic → its id, number of partitions."""
        metadata = self._call(lambda client: client.list_topics(timeout=answer_seconds()))
        self._check_brokers((broker.host, broker.port) for broker in metadata.brokers.values())
        found = {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if topic.error is None and _fits(name, self._topic_patterns, hidden="__")
        }
        self._ids = {name: known for name, known in self._ids.items() if name in found}
        without = self._without_ids_at
        if found and (without is None or abs(self._clock() - without) >= IDS_SECONDS):
            self._read_ids(list(found))
        return {name: (self._ids.get(name, ""), count) for name, count in found.items()}

    def _read_ids(self, names: list[str]) -> None:
        """What is not answered now is as before. Some brokers answer none, and are slow to say so."""
        from confluent_kafka import KafkaException, TopicCollection

        self._without_ids_at = self._clock()
        try:
            asked = self._connected().describe_topics(
                TopicCollection(names), request_timeout=answer_seconds()
            )
        except KafkaException:
            return
        for name, future in asked.items():
            with suppress(Exception):
                self._ids[name] = str(future.result(answer_seconds()).topic_id)
                self._without_ids_at = None

    def _group_names(self) -> list[str]:
        """Those that are read; names without a pattern need not be listed."""
        if _are_names(self._group_patterns):
            return list(self._group_patterns)[:MOST_GROUPS]
        listed = self._answer(self._connected().list_consumer_groups(request_timeout=answer_seconds()))
        if listed.errors and not listed.valid:
            raise self._wrong(listed.errors[0])
        names = sorted(each.group_id for each in listed.valid if _fits(each.group_id, self._group_patterns))
        return names[:MOST_GROUPS]

    def _described(self, names: list[str]) -> dict[str, tuple[str, tuple[GroupReader, ...]]]:
        """Group → its state, members; unknown where the broker does not say."""
        if not names:
            return {}
        asked = self._connected().describe_consumer_groups(names, request_timeout=answer_seconds())
        found: dict[str, tuple[str, tuple[GroupReader, ...]]] = {}
        for name, future in asked.items():
            try:
                answer = future.result(answer_seconds())
            except Exception as error:
                self._refuse_unless_unsupported(error)
                found[name] = UNKNOWN, ()
            else:
                members = tuple(_member(each) for each in answer.members)
                found[name] = answer.state.name.lower().replace("_", " "), members
        return found

    def _committed(self, names: list[str], topics: "_Topics") -> dict[str, dict[Partition, int]]:
        """Group → partition → offset. Topics that are named are asked for by name: not every broker gives
        all.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        client = self._connected()
        asked_for = None
        if _are_names(self._topic_patterns):
            counts = {name: count for name, (_, count) in topics.items()}
            asked_for = [
                TopicPartition(name, number) for name, count in counts.items() for number in range(count)
            ]
        # One group a request; all are under way at once.
        asked = [
            client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name, asked_for)], request_timeout=answer_seconds()
            )[name]
            for name in names
        ]
        found: dict[str, dict[Partition, int]] = {}
        for name, future in zip(names, asked, strict=True):
            rows = self._answer(future).topic_partitions or ()
            found[name] = {
                (row.topic, row.partition): row.offset
                for row in rows
                if row.error is None
                and row.offset > NO_OFFSET
                and _fits(row.topic, self._topic_patterns, hidden="__")
            }
        return found

    def _offsets(self) -> dict[Partition, Offsets]:
        """Of the partitions that groups read; without those whose leader is away."""
        from confluent_kafka.admin import OffsetSpec

        begins = self._listed(dict.fromkeys(self._asked, OffsetSpec.earliest()))
        ends = self._listed(dict.fromkeys(self._asked, OffsetSpec.latest()))
        return {
            each: Offsets(begins[each].offset, ends[each].offset)
            for each in self._asked
            if each in begins and each in ends
        }

    def _listed(self, specs: "Mapping[Partition, OffsetSpec]") -> dict[Partition, Any]:
        from confluent_kafka import KafkaException, TopicPartition

        if not specs:
            return {}
        asked = self._connected().list_offsets(
            {TopicPartition(*each): spec for each, spec in specs.items()}, request_timeout=answer_seconds()
        )
        found = {}
        for partition, future in asked.items():
            try:
                found[partition.topic, partition.partition] = future.result(2 * answer_seconds())
            except KafkaException as error:
                if _code(error) in SILENT:
                    raise self._wrong(error.args[0]) from error
        return found

    def _answer(self, future: "Future[Any]") -> Any:
        return self._call(lambda _: future.result(2 * answer_seconds()))

    def _call(self, ask: "Callable[[AdminClient], Any]") -> Any:
        from confluent_kafka import KafkaException

        client = self._connected()
        try:
            return ask(client)
        except KafkaException as error:
            raise self._wrong(error.args[0]) from error
        except TimeoutError as error:
            raise PlantSilent(f"{self.name} did not answer within {answer_seconds():g} s.") from error

    def _refuse_unless_unsupported(self, error: Exception) -> None:
        """A broker may not know a question, or not let us ask it; one that is silent is silent."""
        if _code(error) in SILENT:
            raise self._wrong(error.args[0]) from error

    def _wrong(self, error: "KafkaError") -> Exception:
        if error.name() in SILENT:
            return PlantSilent(f"{self.name} can't be reached ({connection_reason(error.str())}).")
        return PlantConfused(f"{self.name} refuses us ({error.name()}): {error.str()}")

    def _connected(self) -> "AdminClient":
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if self._client is None:
            try:
                self._client = AdminClient(client_settings(self._address))
            except KafkaException as error:
                raise PlantConfused(f"{self.name}: {error.args[0].str()}") from error
        return self._client

    def _check_brokers(self, brokers: Iterable[tuple[str, int]]) -> None:
        for host, port in set(brokers) - self._brokers:
            check_broker(self.name, host, port)
            self._brokers.add((host, port))


_Topics = Mapping[str, tuple[str, int]]


def client_settings(address: PlantAddress) -> dict[str, Any]:
    """Of librdkafka. Raises PlantSilent for an address that leads where the egress policy does not go, or
    where the secret may not be used.
    """
    url = httpx.URL(address.url)
    tls, user = url.scheme == "kafkas", address.option("user")
    brokers = [
        (url.host, url.port or SCHEMES[url.scheme]),
        *map(broker_of, listed(address.option("brokers"))),
    ]
    try:
        for host, _ in brokers:
            egress.check_secret_host(address.secret_name, host)
    except BadInput as error:
        raise PlantSilent(f"{address.name} can't be asked: {error.message}") from None
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(_reached(address.name, *each, tls=tls) for each in brokers),
        "client.id": "weir",
        "security.protocol": ("SASL_" if user else "") + ("SSL" if tls else "PLAINTEXT"),
        "socket.connection.setup.timeout.ms": round(answer_seconds() * 1000),
        "socket.timeout.ms": round(2 * answer_seconds() * 1000),
        "reconnect.backoff.max.ms": 2_000,
        "receive.message.max.bytes": MOST_ANSWER_BYTES,
        "log_level": 0,  # what goes wrong is said by an answer
    }
    if user:
        settings |= {
            "sasl.mechanism": address.option("mechanism", "SCRAM-SHA-512"),
            "sasl.username": user,
            "sasl.password": address.secret,
        }
    return settings


def listed(text: str) -> list[str]:
    """Parts that commas separate."""
    return [part for each in text.split(",") if (part := each.strip())]


def broker_of(text: str) -> tuple[str, int]:
    """Of `host:port`. Raises BadInput."""
    url = egress.check_url(f"kafka://{text}", "brokers", SCHEMES)
    return url.host, url.port or SCHEMES["kafka"]


def _reached(name: str, host: str, port: int, *, tls: bool) -> str:
    """What is connected to: an address that was checked, or the name where a certificate has to name it."""
    address = check_broker(name, host, port)[0]
    reached = host if tls else address
    return f"[{reached}]:{port}" if ":" in reached else f"{reached}:{port}"


def check_broker(name: str, host: str, port: int) -> list[str]:
    """Its addresses. Raises PlantSilent for a broker that the egress policy refuses."""
    try:
        return egress.addresses_of(host, port, ports=frozenset(SCHEMES.values()))
    except egress.AddressRefused as error:
        raise PlantSilent(f"{name} can't be reached: {error}") from error


def _member(answer: Any) -> GroupReader:
    given = answer.assignment.topic_partitions if answer.assignment else ()
    return GroupReader(
        answer.client_id, answer.host, frozenset((each.topic, each.partition) for each in given)
    )


def _there(partition: Partition, topics: _Topics) -> bool:
    return partition[0] in topics and partition[1] < topics[partition[0]][1]


def _fits(name: str, patterns: Sequence[str], hidden: str = "") -> bool:
    if not patterns:
        return not (hidden and name.startswith(hidden))
    return any(fnmatch.fnmatchcase(name, each) for each in patterns)


def _are_names(patterns: Sequence[str]) -> bool:
    return bool(patterns) and not any(set("*?[") & set(each) for each in patterns)


def _code(error: Exception) -> str:
    found = error.args[0] if error.args else None
    return str(found.name()) if found is not None and hasattr(found, "name") else ""
