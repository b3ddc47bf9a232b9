"""Conditions of sensors: numbers that declared plants name, from PromQL, SQL, JSON, or a file."""

from collections.abc import Iterator

from workers.alerts.conditions.condition import Condition, Reading
from workers.alerts.conditions.evidence import Evidence
from workers.documents.plants import SensorStatus

SERIES = ("plants.{plant}.sensors.{sensor}.value",)


def _read_sensor_values(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for plant, name, sensor in _iterate_sensors(evidence):
        unit = f" {sensor.unit}" if sensor.unit else ""
        value = sensor.known_value
        said = "unknown" if value is None else f"{value:.4g}{unit}"
        yield Reading(_build_labels(plant, name), value, f"{_format_title(plant, name, sensor)}: {said}.")


def _read_silent_sensors(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for plant, name, sensor in _iterate_sensors(evidence):
        why = f" {sensor.error.rstrip('.')}." if sensor.error else ""
        said = f"{_format_title(plant, name, sensor)}: no value for {sensor.silent_seconds:.0f} s.{why}"
        yield Reading(_build_labels(plant, name), sensor.silent_seconds, said)


def _iterate_sensors(evidence: Evidence) -> Iterator[tuple[str, str, SensorStatus]]:
    for plant, status in evidence.plant.plants.items():
        for name, sensor in status.sensors.items():
            yield plant, name, sensor


def _build_labels(plant: str, sensor: str) -> dict[str, str]:
    return {"plant": plant, "sensor": sensor}


def _format_title(plant: str, name: str, sensor: SensorStatus) -> str:
    return f"{sensor.title or f'Sensor {name}'} of {plant}"


CONDITIONS = (
    Condition(
        "sensor_above",
        "Value of a declared plant's sensor, with the title and unit of its declaration.",
        "",
        "sensor",
        _read_sensor_values,
        series=SERIES,
        # Only the author of the declaration knows how much of it is too much.
        has_rule=False,
    ),
    Condition(
        "sensor_below",
        "Value of a declared plant's sensor whose low values are critical.",
        "",
        "sensor",
        _read_sensor_values,
        direction="below",
        series=SERIES,
        has_rule=False,
    ),
    Condition(
        "sensor_silent",
        "Time for which a declared plant's sensor has had no value.",
        "s",
        "sensor",
        _read_silent_sensors,
        elapses=True,
    ),
)
