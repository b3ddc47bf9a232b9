"""Reads the sensors of a declared plant: several at once, all within `round_seconds`.

A number that the source does not have is None. A source that is unreachable, late, or invalid raises `PlantUnavailable`
or `InvalidPlantResponse` with the name of the sensor; it does not delay other sensors.
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

import orjson

from common import environment as variables
from common.documents import decode_text, parse_json
from common.errors import BadInput, WeirError
from common.parsing import parse_measured_number
from workers.plants.foreign.answer_limit import round_seconds
from workers.plants.foreign.declared import sources
from workers.plants.foreign.declared.sensor import (
    DeclaredSensor,
    FileSource,
    HttpSource,
    PromqlSource,
    RedisSource,
    SqlSource,
    resolve_file,
)
from workers.plants.foreign.declared.servers import ServerClients
from workers.plants.foreign.declared.sources import PartialAnswer, PrometheusClient
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

AT_ONCE = 8
MAX_FILE_BYTES = 64 * 1024


@dataclass(frozen=True)
class SensorReading:
    """A reading of a sensor. value: None if unknown.

    error: why it is unknown; the exception is kept for code that needs the number. A value with an error covers only a
    part: it is shown, but nothing is decided on it.
    """

    value: float | None = None
    error: Exception | None = None
    seconds: float = 0.0

    def get_value(self) -> float | None:
        """Return the value, or raise what prevented its reading."""
        if self.error is not None:
            raise self.error
        return self.value


class SensorReader:
    """The sensors of one plant over time: counters become rates, and some are read less often."""

    def __init__(
        self,
        sensors: Iterable[DeclaredSensor],
        clients: ServerClients,
        window_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sensors = {sensor.name: sensor for sensor in sensors}
        self._clients, self._window_seconds, self._monotonic = clients, window_seconds, monotonic
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sensor")
        self._counted: dict[str, deque[tuple[float, float]]] = {}
        self._kept: dict[str, tuple[float, SensorReading]] = {}

    def read(self, names: Iterable[str] | None = None) -> dict[str, SensorReading]:
        """Read these sensors, or all of them. Sensors with the same source share one request."""
        wanted = [self._sensors[name] for name in (self._sensors if names is None else dict.fromkeys(names))]
        now = self._monotonic()
        groups: dict[object, list[DeclaredSensor]] = {}
        for sensor in wanted:
            if self._is_due(sensor, now):
                groups.setdefault(_build_source_key(sensor), []).append(sensor)
        asked = {
            sensor.name: answer
            for sensors in groups.values()
            for answer in [self._pool.submit(self._read_with_time, sensors)]
            for sensor in sensors
        }
        wait(asked.values(), round_seconds())
        return {
            wanted_sensor.name: self._read_sensor(wanted_sensor, asked.get(wanted_sensor.name), now)
            for wanted_sensor in wanted
        }

    def close(self) -> None:
        """Close the reader; requests in progress end by their own timeout."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _is_due(self, sensor: DeclaredSensor, now: float) -> bool:
        kept = self._kept.get(sensor.name)
        return kept is None or now - kept[0] >= sensor.every_seconds

    def _read_sensor(
        self, sensor: DeclaredSensor, asked: Future[dict[str, SensorReading]] | None, now: float
    ) -> SensorReading:
        if asked is None:
            return self._kept[sensor.name][1]
        if not asked.done():
            asked.cancel()
            return SensorReading(
                None,
                PlantUnavailable(f"Sensor {sensor.name}: the source did not respond within {round_seconds():g} s."),
            )
        reading = asked.result()[sensor.name]
        if reading.error is None:
            value = self._compute_rate(sensor.name, reading.value, now) if sensor.counter else reading.value
            reading = SensorReading(None if value is None else sensor.times * value, None, reading.seconds)
            self._kept[sensor.name] = now, reading
        return reading

    def _compute_rate(self, name: str, value: float | None, now: float) -> float | None:
        """Return the increase per second over the window; None until two values since the last decrease."""
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

    def _read_with_time(self, sensors: Sequence[DeclaredSensor]) -> dict[str, SensorReading]:
        """Read sensors that share one request."""
        began = time.monotonic()
        try:
            answer, refused = self._answer(sensors[0]), None
        except Exception as error:  # a failing source must not affect the reading of others
            answer, refused = None, error
        seconds = time.monotonic() - began
        return {sensor.name: _read(sensor, answer, refused, seconds) for sensor in sensors}

    def _answer(self, sensor: DeclaredSensor) -> object:
        """Return a number, or the document that contains it."""
        source = sensor.source
        if isinstance(source, PromqlSource):
            client, path = self._clients.resolve(source.server.url, source.server.login)
            return PrometheusClient(client, path).query_value(source.query)
        if isinstance(source, SqlSource):
            address = _read_address(source.database, "database", self._clients.environment)
            return sources.query_single_value(source.database, address, source.query)
        if isinstance(source, RedisSource):
            address = _read_address(source.server, "server", self._clients.environment)
            return sources.read_single_value(source.server, address, source.command)
        if isinstance(source, FileSource):
            return _read_file(source)
        client, path = self._clients.resolve(source.url, source.login)
        status, document = client.ask("GET", path)
        if status != 200:
            raise InvalidPlantResponse(f"{client.name} returned status {status} for /{path[:100]}")
        return document


def _build_source_key(sensor: DeclaredSensor) -> object:
    """Return a key: sensors with an equal key can be read from one answer."""
    source = sensor.source
    if isinstance(source, HttpSource):
        return source.url, source.login
    if isinstance(source, FileSource):
        return source.file, bool(source.path.text), source.fresh_seconds
    return sensor.name


def _read(sensor: DeclaredSensor, answer: object, refused: Exception | None, seconds: float) -> SensorReading:
    try:
        if refused is not None:
            raise refused
        return SensorReading(_parse_number(sensor, answer), None, seconds)
    except WeirError as error:
        kind = PlantUnavailable if isinstance(error, PlantUnavailable) else InvalidPlantResponse
        said = kind(f"Sensor {sensor.name}: {str(error).rstrip('.')}.")
        if isinstance(error, PartialAnswer) and error.value is not None and not sensor.counter:
            return SensorReading(sensor.times * error.value, said, seconds)
    except Exception as fault:  # a failing source must not affect the reading of others
        said = InvalidPlantResponse(f"Sensor {sensor.name}: reading failed ({fault!r}).")
    return SensorReading(None, said, seconds)


def _parse_number(sensor: DeclaredSensor, answer: object) -> float | None:
    source = sensor.source
    value = source.path.read(answer) if isinstance(source, HttpSource | FileSource) else answer
    if value is None:
        return None
    if isinstance(value, bool | list | dict):
        raise InvalidPlantResponse("the source returned no number")
    try:
        number = parse_measured_number(value)
    except (TypeError, ValueError):
        raise InvalidPlantResponse(f"the source returned {str(value)[:40]!r}, which is not a number") from None
    return number if math.isfinite(number) else None


def _read_address(variable: str, field: str, environment: Mapping[str, str]) -> str:
    """Return the address in the variable. Raise `BadInput` if it is not set."""
    address = variables.read_secret(variable, environment)
    if not address:
        raise BadInput(field, f"names {variable}, which is not set in Weir's environment")
    return address


def _read_file(source: FileSource) -> object:
    path = resolve_file(source.file, "file")  # again, because a link may have been made meanwhile
    try:
        # A link that is made from now on is not followed, and a pipe without a writer does not block.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InvalidPlantResponse(f"{source.file} is not a regular file")
            age_seconds = time.time() - status.st_mtime
            if 0 < source.fresh_seconds < age_seconds:
                raise PlantUnavailable(
                    f"{source.file} was last written {age_seconds:,.0f} s ago,"
                    f" more than fresh_seconds ({source.fresh_seconds:g} s)"
                )
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise PlantUnavailable(f"{source.file} can't be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise InvalidPlantResponse(f"{source.file} has more than {MAX_FILE_BYTES} bytes")
    if not source.path.text:
        return decode_text(content, "replace").strip() or None
    try:
        return parse_json(content)
    except (orjson.JSONDecodeError, RecursionError):
        raise InvalidPlantResponse(f"{source.file} contains invalid or incomplete JSON") from None
