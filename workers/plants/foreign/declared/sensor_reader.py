"""Reads the sensors of a declared plant: several at once, each in time, all together in round_seconds.

A number that the source does not have is None. A source that is away, late or confused raises PlantSilent or
PlantConfused, with the sensor's name; it keeps no other sensor waiting.
"""

import math
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from queues import environment as variables
from queues.documents import decoded_text, parse_json
from queues.errors import BadInput, WeirError
from queues.text.numbers import measured_number
from workers.plants.foreign.answer_limit import round_seconds
from workers.plants.foreign.declared import redis_value, sql
from workers.plants.foreign.declared.clients import ServerClients
from workers.plants.foreign.declared.sensor import (
    DeclaredSensor,
    FileSource,
    HttpSource,
    PromqlSource,
    RedisSource,
    SqlSource,
    checked_file,
)
from workers.plants.foreign.prometheus_client import PartialAnswer, PrometheusClient
from workers.plants.plant import PlantConfused, PlantSilent

AT_ONCE = 8
MOST_FILE_BYTES = 64 * 1024


@dataclass(frozen=True)
class SensorReading:
    """What a sensor says; None: not known. error: why not, in a sentence; the exception is kept for whoever
    needs the number. A value beside it is of a part alone, to be shown and not to be relied on.
    """

    value: float | None = None
    error: Exception | None = None
    seconds: float = 0.0

    def known(self) -> float | None:
        """The value. Raises what kept it from being read."""
        if self.error is not None:
            raise self.error
        return self.value


class SensorReader:
    """Of one plant's sensors, look after look: counters become rates, and some are asked seldom."""

    def __init__(
        self,
        sensors: Iterable[DeclaredSensor],
        clients: ServerClients,
        window_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sensors = {each.name: each for each in sensors}
        self._clients, self._window_seconds, self._monotonic = clients, window_seconds, monotonic
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sensor")
        self._counted: dict[str, deque[tuple[float, float]]] = {}
        self._kept: dict[str, tuple[float, SensorReading]] = {}

    def read(self, names: Iterable[str] | None = None) -> dict[str, SensorReading]:
        """These sensors, or all of them. What several of them read of is asked once."""
        wanted = [self._sensors[name] for name in (self._sensors if names is None else dict.fromkeys(names))]
        now = self._monotonic()
        groups: dict[object, list[DeclaredSensor]] = {}
        for sensor in wanted:
            if self._is_due(sensor, now):
                groups.setdefault(_question(sensor), []).append(sensor)
        asked = {
            sensor.name: answer
            for sensors in groups.values()
            for answer in [self._pool.submit(self._timed, sensors)]
            for sensor in sensors
        }
        wait(asked.values(), round_seconds())
        return {each.name: self._reading(each, asked.get(each.name), now) for each in wanted}

    def close(self) -> None:
        """What is still being asked ends by its own time limit."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _is_due(self, sensor: DeclaredSensor, now: float) -> bool:
        kept = self._kept.get(sensor.name)
        return kept is None or now - kept[0] >= sensor.every_seconds

    def _reading(
        self, sensor: DeclaredSensor, asked: Future[dict[str, SensorReading]] | None, now: float
    ) -> SensorReading:
        if asked is None:
            return self._kept[sensor.name][1]
        if not asked.done():
            asked.cancel()
            return SensorReading(
                None, PlantSilent(f"Sensor {sensor.name}: no answer within {round_seconds():g} s.")
            )
        found = asked.result()[sensor.name]
        if found.error is None:
            value = self._rate(sensor.name, found.value, now) if sensor.counter else found.value
            found = SensorReading(None if value is None else sensor.times * value, None, found.seconds)
            self._kept[sensor.name] = now, found
        return found

    def _rate(self, name: str, value: float | None, now: float) -> float | None:
        """Its increase a second over the window; None until it was seen twice since it last fell."""
        counted = self._counted.setdefault(name, deque())
        if value is None:
            return None
        if counted and value < counted[-1][1]:
            counted.clear()
        counted.append((now, value))
        while len(counted) > 2 and counted[1][0] <= now - self._window_seconds:
            counted.popleft()
        elapsed = now - counted[0][0]
        return sum(b[1] - a[1] for a, b in pairwise(counted)) / elapsed if elapsed > 0 else None

    def _timed(self, sensors: Sequence[DeclaredSensor]) -> dict[str, SensorReading]:
        """Of sensors with one question."""
        began = time.monotonic()
        try:
            answer, refused = self._answer(sensors[0]), None
        except Exception as error:  # a source must not end the reading of the others
            answer, refused = None, error
        seconds = time.monotonic() - began
        return {each.name: _read(each, answer, refused, seconds) for each in sensors}

    def _answer(self, sensor: DeclaredSensor) -> Any:
        """A number, or the document that it stands in."""
        source = sensor.source
        if isinstance(source, PromqlSource):
            client, path = self._clients.to(source.server.url, source.server.login)
            return PrometheusClient(client, path).value(source.query)
        if isinstance(source, SqlSource):
            address = _address(source.database, "database", self._clients.environment)
            return sql.one_value(source.database, address, source.query)
        if isinstance(source, RedisSource):
            address = _address(source.server, "server", self._clients.environment)
            return redis_value.one_number(source.server, address, source.command)
        if isinstance(source, FileSource):
            return _of_file(source)
        client, path = self._clients.to(source.url, source.login)
        status, document = client.ask("GET", path)
        if status != 200:
            raise PlantConfused(f"{client.name} answers {status} at /{path[:100]}")
        return document


def _question(sensor: DeclaredSensor) -> object:
    """What sensors must agree in to be read of one answer."""
    source = sensor.source
    if isinstance(source, HttpSource):
        return source.url, source.login
    if isinstance(source, FileSource):
        return source.file, bool(source.path.text), source.fresh_seconds
    return sensor.name


def _read(sensor: DeclaredSensor, answer: Any, refused: Exception | None, seconds: float) -> SensorReading:
    try:
        if refused is not None:
            raise refused
        return SensorReading(_number(sensor, answer), None, seconds)
    except WeirError as error:
        kind = PlantSilent if isinstance(error, PlantSilent) else PlantConfused
        said = kind(f"Sensor {sensor.name}: {str(error).rstrip('.')}.")
        if isinstance(error, PartialAnswer) and error.value is not None and not sensor.counter:
            return SensorReading(sensor.times * error.value, said, seconds)
    except Exception as fault:  # likewise
        said = PlantConfused(f"Sensor {sensor.name}: reading failed ({fault!r}).")
    return SensorReading(None, said, seconds)


def _number(sensor: DeclaredSensor, answer: Any) -> float | None:
    source = sensor.source
    found = source.path.of(answer) if isinstance(source, HttpSource | FileSource) else answer
    if found is None:
        return None
    if isinstance(found, bool | list | dict):
        raise PlantConfused("the source gives no number")
    try:
        number = measured_number(found)
    except (TypeError, ValueError):
        raise PlantConfused(f"the source gives {str(found)[:40]!r}, which is no number") from None
    return number if math.isfinite(number) else None


def _address(variable: str, field: str, environment: Mapping[str, str]) -> str:
    """Raises BadInput where the variable holds none."""
    address = variables.secret_named(variable, environment)
    if not address:
        raise BadInput(field, f"names {variable}, which is not set here")
    return address


def _of_file(source: FileSource) -> Any:
    path = checked_file(source.file, "file")  # again: a link may have come meanwhile
    try:
        # A link that comes from now on is not followed, and a pipe without a writer keeps nobody.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise PlantConfused(f"{source.file} is no file of bytes")
            age_seconds = time.time() - status.st_mtime
            if 0 < source.fresh_seconds < age_seconds:
                raise PlantSilent(f"{source.file} was last written {age_seconds:,.0f} s ago")
            content = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise PlantSilent(f"{source.file} can't be read: {error.strerror}") from None
    if len(content) > MOST_FILE_BYTES:
        raise PlantConfused(f"{source.file} has more than {MOST_FILE_BYTES} bytes")
    if not source.path.text:
        return decoded_text(content, "replace").strip() or None
    try:
        return parse_json(content)
    except (orjson.JSONDecodeError, RecursionError):
        raise PlantConfused(f"{source.file} holds no JSON, or only half of it") from None
