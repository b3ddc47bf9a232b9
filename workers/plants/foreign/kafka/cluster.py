"""A Kafka cluster by its own protocol: one reading of its topics, groups, and offsets.

No event is read. Nothing is changed there, except the offsets of a group that a person resets.

librdkafka connects on its own, also to brokers that the cluster names, so the egress policy checks each of its
connections (`workers.plants.foreign.kafka.checked_client`). A group, topic, partition, or coordinator that can't answer
is left out and named; the rest of the cluster is read.
"""

import fnmatch
import ipaddress
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from common.errors import BadInput, describe_connection_error
from workers.host import egress
from workers.plants.foreign.answer_limit import answer_seconds
from workers.plants.foreign.kafka.checked_client import (
    UncheckedLibrary,
    create_checked_client,
    list_refused_connections,
)
from workers.plants.foreign.kafka.group_lag import UNKNOWN, ClusterReading, Group, GroupReader, Offsets, Partition
from workers.plants.foreign.kind import PlantAddress
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, GroupMetadata, MemberDescription, OffsetSpec

SCHEMES: Mapping[str, int] = {"kafka": 9092, "kafkas": 9093}  # plain, and TLS
PORTS = frozenset(SCHEMES.values())
MAX_GROUPS, MAX_PARTITIONS = 200, 4_000
MAX_ANSWER_BYTES = 32 * 2**20  # a cluster lists all of its partitions in one answer
SILENT = ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT_QUEUE", "REQUEST_TIMED_OUT")
_Key = TypeVar("_Key")
Answer = TypeVar("Answer")
OTHER_GROUPS_SECONDS = 300.0
NO_OFFSET = -1  # a lower number means "none committed"


class KafkaCluster:
    """One cluster.

    groups, topics: shell patterns (`billing-*`) of what is read; if empty, all except topics that start with `__`.
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
        self._asked: set[Partition] = set()  # partitions whose offsets are read
        self._beyond: set[Partition] = set()  # partitions beyond the maximum, whose offsets are not read
        self._committed_before: dict[str, Mapping[Partition, int]] = {}  # offsets at the last reading
        self._failures: dict[str, str] = {}
        self._other_groups: tuple[str, ...] = ()
        self._other_groups_due_at = -math.inf

    def read(self) -> ClusterReading:
        """Return a reading. Raise `PlantUnavailable` and `InvalidPlantResponse`."""
        self._failures = {}
        topics = self._read_topics()
        names = self._group_names()
        described, described_at = self._describe_groups(names), self._clock()
        if not self._asked:
            self._follow(self._load_committed(names, topics), described, topics)
        offsets, ends_at = self._read_offsets(), self._clock()
        committed, committed_at = self._load_committed(names, topics), self._clock()
        groups = {}
        for name in names:
            state, members = described[name]
            of_group = committed.get(name, {})
            # Offsets of new partitions come with the next reading.
            known = {part: at for part, at in of_group.items() if part in self._asked or not _has(part, topics)}
            groups[name] = Group(state, members, known, len(self._beyond & of_group.keys()))
        self._follow(committed, described, topics)
        return ClusterReading(ends_at, committed_at, topics, offsets, groups, described_at)

    @property
    def other_groups(self) -> tuple[str, ...]:
        """Return the share groups and Streams groups that were listed last."""
        return self._other_groups

    @property
    def failures(self) -> Mapping[str, str]:
        """Return what could not be read the last time, such as `Group secret`, and why."""
        return self._failures

    def ends_at(self, times: Mapping[Partition, float]) -> dict[Partition, int | None]:
        """Return the offset of the first event at or after this time (seconds since 1970), by partition.

        None: there is none. A partition that does not answer is left out.
        """
        from confluent_kafka.admin import OffsetSpec

        specs = {partition: OffsetSpec.for_timestamp(round(at * 1000)) for partition, at in times.items()}
        ends: dict[Partition, int | None] = {}
        for partition, result in self._list_offsets(specs).items():
            # A broker returns a time with the offset that it found, and -1 if there is none.
            ends[partition] = result.offset if result.timestamp >= 0 and result.offset >= 0 else None
        return ends

    def read_group(self, name: str) -> tuple[str, int, dict[Partition, int]]:
        """Return a group's state, its number of members, and its committed offsets.

        Raise `InvalidPlantResponse` if its offsets can't be read.
        """
        self._failures = {}
        state, members = self._describe_groups([name])[name]
        committed = self._load_committed([name], self._read_topics())
        if name not in committed:
            why = self._failures.get(f"Group {name}", "the broker returned no offsets")
            raise InvalidPlantResponse(f"The offsets of group {name} can't be read: {why}.")
        return state, len(members), committed[name]

    def read_ranges(self, partitions: Iterable[Partition]) -> dict[Partition, Offsets]:
        """Return the first offset and the end of each partition; one without a leader is left out."""
        from confluent_kafka.admin import OffsetSpec

        wanted = list(partitions)
        begins = self._list_offsets(dict.fromkeys(wanted, OffsetSpec.earliest()))
        ends = self._list_offsets(dict.fromkeys(wanted, OffsetSpec.latest()))
        return {
            partition: Offsets(begins[partition].offset, ends[partition].offset)
            for partition in wanted
            if partition in begins and partition in ends
        }

    def change_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Commit these offsets for a group, which must be empty.

        Raise `PlantUnavailable`, and `InvalidPlantResponse` with the first error; other partitions may have changed.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

        rows = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        asked = self._open_client().alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, rows)], request_timeout=answer_seconds()
        )
        try:
            answer = asked[group].result(2 * answer_seconds())
        except (KafkaException, TimeoutError, ValueError) as error:
            raise self._build_error(_extract_kafka_error(error)) from error
        failed = next((row.error for row in answer.topic_partitions or () if row.error is not None), None)
        if failed is not None:
            raise self._build_error(failed)

    @property
    def left(self) -> int:
        """Return how many partitions that groups read are beyond MAX_PARTITIONS, at the last reading."""
        return len(self._beyond)

    def close(self) -> None:
        """Close the connections."""
        self._client = None

    def _follow(
        self,
        committed: Mapping[str, Mapping[Partition, int]],
        described: Mapping[str, tuple[str, tuple[GroupReader, ...]]],
        topics: Mapping[str, int],
    ) -> None:
        """Follow the partitions of existing topics that groups read or have read.

        A group that can't be read now is assumed to read its former partitions.
        """
        self._committed_before = {name: committed.get(name, self._committed_before.get(name, {})) for name in described}
        read = {offset for offsets in self._committed_before.values() for offset in offsets}
        read |= {
            partition for _, members in described.values() for member in members for partition in member.partitions
        }
        there = sorted(topic for topic in read if _has(topic, topics))
        self._asked, self._beyond = set(there[:MAX_PARTITIONS]), set(there[MAX_PARTITIONS:])

    def _read_topics(self) -> Mapping[str, int]:
        """Return topic → its number of partitions."""
        metadata = self._call(lambda client: client.list_topics(timeout=answer_seconds()))
        self._check_brokers((str(broker.host), broker.port) for broker in metadata.brokers.values())
        for name, topic in metadata.topics.items():
            if topic.error is not None and _fits(name, self._topic_patterns, hidden="__"):
                self._failures[f"Topic {name}"] = format_kafka_error(topic.error)
        return {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if topic.error is None and _fits(name, self._topic_patterns, hidden="__")
        }

    def _group_names(self) -> list[str]:
        """Return the consumer groups to read; names without a pattern need no listing."""
        others = self._read_other_groups()
        if _are_names(self._group_patterns):
            return [name for name in self._group_patterns if name not in others][:MAX_GROUPS]
        future = self._open_client().list_consumer_groups(request_timeout=answer_seconds())
        listed = self._call(lambda _: future.result(2 * answer_seconds()))
        if listed.errors:
            error = _extract_kafka_error(listed.errors[0])
            if not listed.valid:
                raise self._build_error(error)
            self._failures["Groups of some brokers"] = format_kafka_error(error)
        names = sorted(listing.group_id for listing in listed.valid if _fits(listing.group_id, self._group_patterns))
        return names[:MAX_GROUPS]

    def _read_other_groups(self) -> tuple[str, ...]:
        """Return the groups that are no consumer groups, read every OTHER_GROUPS_SECONDS.

        librdkafka lists consumer groups only. Its older listing names all groups, and describes each in the classic
        protocol. A share group or a Streams group is `Dead` or not found there.
        """
        from confluent_kafka import KafkaException

        now = self._clock()
        if self._other_groups_due_at - OTHER_GROUPS_SECONDS <= now < self._other_groups_due_at:
            return self._other_groups
        self._other_groups_due_at = now + OTHER_GROUPS_SECONDS
        client = self._open_client()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # Only this request lists groups of all kinds.
                every = client.list_groups(timeout=answer_seconds())
            future = client.list_consumer_groups(request_timeout=answer_seconds())
            consumers = {listing.group_id for listing in future.result(2 * answer_seconds()).valid}
        except (KafkaException, TimeoutError):
            return self._other_groups  # What is wrong with the cluster is reported by the other requests.
        others = {str(group.id) for group in every if _has_other_protocol(group)} - consumers
        fitting = (name for name in others if _fits(name, self._group_patterns))
        self._other_groups = tuple(sorted(fitting))
        return self._other_groups

    def _describe_groups(self, names: list[str]) -> dict[str, tuple[str, tuple[GroupReader, ...]]]:
        """Return group → (its state, members); unknown if the broker does not answer."""
        if not names:
            return {}
        asked = self._open_client().describe_consumer_groups(names, request_timeout=answer_seconds())
        answers, _ = self._settle(asked, answer_seconds())
        return {
            name: (answers[name].state.name.lower().replace("_", " "), tuple(map(_build_reader, answers[name].members)))
            if name in answers
            else (UNKNOWN, ())
            for name in names
        }

    def _load_committed(self, names: list[str], topics: Mapping[str, int]) -> dict[str, dict[Partition, int]]:
        """Return group → partition → offset, of the groups that can be read.

        Topics that are named are requested by name: not every broker returns all.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        client = self._open_client()
        asked_for = None
        if _are_names(self._topic_patterns):
            asked_for = [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]
        # One request per group; all run at once.
        asked = {
            name: client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name, asked_for)], request_timeout=answer_seconds()
            )[name]
            for name in names
        }
        answers, failed = self._settle(asked, 2 * answer_seconds())
        for name, error in failed.items():
            self._failures[f"Group {name}"] = format_kafka_error(error)
        offsets: dict[str, dict[Partition, int]] = {}
        for name, answer in answers.items():
            offsets[name] = {}
            for row in answer.topic_partitions or ():
                if not _fits(row.topic, self._topic_patterns, hidden="__"):
                    continue
                if row.error is not None:
                    self._failures[f"Group {name} on topic {row.topic}"] = format_kafka_error(row.error)
                elif row.offset > NO_OFFSET:
                    offsets[name][row.topic, row.partition] = row.offset
        return offsets

    def _read_offsets(self) -> dict[Partition, Offsets]:
        """Return the offsets of the partitions that groups read, except those without a leader."""
        return self.read_ranges(self._asked)

    def _list_offsets(self, specs: "Mapping[Partition, OffsetSpec]") -> dict[Partition, Any]:
        from confluent_kafka import TopicPartition

        if not specs:
            return {}
        asked = self._open_client().list_offsets(
            {TopicPartition(*partition): spec for partition, spec in specs.items()}, request_timeout=answer_seconds()
        )
        answers, failed = self._settle(asked, 2 * answer_seconds())
        for partition, error in failed.items():
            self._failures[f"Partition {partition.partition} of topic {partition.topic}"] = format_kafka_error(error)
        return {(partition.topic, partition.partition): answer for partition, answer in answers.items()}

    def _settle(
        self, asked: "Mapping[_Key, Future[Any]]", seconds: float
    ) -> "tuple[dict[_Key, Any], dict[_Key, KafkaError]]":
        """Return the answers and the errors of running requests. A failed request hides no other.

        Raise `PlantUnavailable` if nothing answers.
        """
        from confluent_kafka import KafkaException

        answers: dict[_Key, Any] = {}
        failed: dict[_Key, KafkaError] = {}
        ends = time.monotonic() + seconds
        for key, future in asked.items():
            try:
                answers[key] = future.result(max(0.0, ends - time.monotonic()))
            except (KafkaException, TimeoutError, ValueError) as error:
                failed[key] = _extract_kafka_error(error)
        if failed and not answers and all(error.name() in SILENT for error in failed.values()):
            raise self._build_error(next(iter(failed.values())))
        return answers, failed

    def _call(self, ask: "Callable[[AdminClient], Answer]") -> Answer:
        from confluent_kafka import KafkaException

        client = self._open_client()
        try:
            return ask(client)
        except KafkaException as error:
            raise self._build_error(error.args[0]) from error
        except TimeoutError as error:
            raise PlantUnavailable(f"{self.name} did not respond within {answer_seconds():g} s.") from error

    def _build_error(self, error: "KafkaError") -> Exception:
        if error.name() in SILENT:
            if refused := list_refused_connections(self._client):
                return PlantUnavailable(f"{self.name} can't be reached: {next(iter(refused.values()))}")
            return PlantUnavailable(f"{self.name} can't be reached ({describe_connection_error(error.str())}).")
        return InvalidPlantResponse(f"{self.name} rejected the request ({error.name()}): {error.str()}")

    def _open_client(self) -> "AdminClient":
        from confluent_kafka import KafkaException

        if self._client is None:
            try:
                self._client = create_checked_client(build_client_settings(self._address), self._check_connection)
            except KafkaException as error:
                raise InvalidPlantResponse(f"{self.name}: {error.args[0].str()}") from error
            except UncheckedLibrary as error:
                raise PlantUnavailable(f"{self.name} can't be reached: {error}") from error
        return self._client

    def _check_brokers(self, brokers: Iterable[tuple[str, int]]) -> None:
        """Raise `PlantUnavailable`, naming the first listed broker that may not be connected to."""
        for host, port in sorted(set(brokers) - self._brokers):
            check_broker(self._address, host, port)
            self._brokers.add((host, port))

    def _check_connection(self, broker: str, address: str, port: int) -> None:
        """Raise `AddressRefused` or `BadInput` if librdkafka may not connect to this address."""
        egress.check_address(f"broker {broker}", ipaddress.ip_address(address), port, PORTS)
        egress.check_secret_host(self._address.secret_name, broker.rpartition(":")[0].strip("[]"))


def build_client_settings(address: PlantAddress) -> dict[str, Any]:
    """Return the settings of librdkafka.

    Raise `PlantUnavailable` for an address that the egress policy refuses, or if the secret may not be used there.
    """
    url = httpx.URL(address.url)
    tls, user = url.scheme == "kafkas", address.get_option("user")
    brokers = [
        (url.host, url.port or SCHEMES[url.scheme]),
        *map(parse_broker, split_names(address.get_option("brokers"))),
    ]
    for host, port in brokers:
        check_broker(address, host, port)  # each of its connections is checked again
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in brokers
        ),
        "client.id": "weir",
        "security.protocol": ("SASL_" if user else "") + ("SSL" if tls else "PLAINTEXT"),
        "socket.connection.setup.timeout.ms": round(answer_seconds() * 1000),
        "socket.timeout.ms": round(2 * answer_seconds() * 1000),
        "reconnect.backoff.max.ms": 2_000,
        "receive.message.max.bytes": MAX_ANSWER_BYTES,
        "log_level": 0,  # errors are reported by answers
    }
    if user:
        settings |= {
            "sasl.mechanism": address.get_option("mechanism", "SCRAM-SHA-512"),
            "sasl.username": user,
            "sasl.password": address.secret,
        }
    return settings


def split_names(text: str) -> list[str]:
    """Return the parts of a text that is separated by commas."""
    return [part for word in text.split(",") if (part := word.strip())]


def parse_broker(text: str) -> tuple[str, int]:
    """Return the host and port of `host:port`. Raise `BadInput`."""
    url = egress.check_url(f"kafka://{text}", "brokers", SCHEMES)
    return url.host, url.port or SCHEMES["kafka"]


def check_broker(plant: PlantAddress, host: str, port: int) -> list[str]:
    """Return the broker's addresses.

    Raise `PlantUnavailable` for a broker that the egress policy refuses, or if the secret may not be used there.
    """
    try:
        egress.check_secret_host(plant.secret_name, host)
        return egress.resolve_allowed_addresses(host, port, ports=PORTS)
    except BadInput as error:
        raise PlantUnavailable(f"{plant.name}: the request failed: {error.message}") from None
    except egress.AddressRefused as error:
        raise PlantUnavailable(
            f"{plant.name} can't be reached: broker {host}:{port} is not allowed: {error}"
        ) from error


def format_kafka_error(error: "KafkaError") -> str:
    return f"{error.name()}: {error.str()}"


def _extract_kafka_error(error: object) -> "KafkaError":
    """Return the Kafka error in an exception of its client."""
    from confluent_kafka import KafkaError

    if isinstance(error, TimeoutError):
        return KafkaError(KafkaError._TIMED_OUT)
    first = error.args[0] if isinstance(error, Exception) and error.args else error
    return first if isinstance(first, KafkaError) else KafkaError(KafkaError._FAIL, str(error))


def _build_reader(answer: "MemberDescription") -> GroupReader:
    given = answer.assignment.topic_partitions if answer.assignment else ()
    return GroupReader(
        answer.client_id, answer.host, frozenset((assigned.topic, assigned.partition) for assigned in given)
    )


def _has_other_protocol(group: "GroupMetadata") -> bool:
    """Return whether a group can't be described in the classic protocol."""
    is_unknown = group.error is not None and group.error.name() == "GROUP_ID_NOT_FOUND"
    return not group.protocol_type and (is_unknown or (group.state or "").lower() == "dead")


def _has(partition: Partition, topics: Mapping[str, int]) -> bool:
    return partition[1] < topics.get(partition[0], 0)


def _fits(name: str, patterns: Sequence[str], hidden: str = "") -> bool:
    if not patterns:
        return not (hidden and name.startswith(hidden))
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _are_names(patterns: Sequence[str]) -> bool:
    return bool(patterns) and not any(set("*?[") & set(pattern) for pattern in patterns)
