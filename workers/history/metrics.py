"""Two hours of the plant's metrics, a row per second, written by the observer and read back as columns.

A series is named by its path in the snapshot: `totals.in_per_second`, `queues.alert.waiting_events`,
`queues.alert.containers.n1.points`, `nodes.n1.utilisation`, `pipeline.in_per_second`,
`loops.worker_rate/alert/n1.actuator`. A state is its index in `node_state.STATES`. A value that is unknown in a second
is missing in its row, and None in its column.
"""

from collections.abc import Collection, Iterator
from typing import Any, cast

import redis
from redis.typing import EncodableT, FieldT

from common import checks
from common.redis_types import Entries
from common.stored_document import StoredDocument
from queues import keys
from queues.nodes.node_state import STATES
from workers.documents.bands import ExpectedBands
from workers.documents.pipeline import ApplicationStatus
from workers.documents.snapshot import Snapshot

RETAINED_ROWS = 7_200
CHUNK_ROWS = 1_000
TOTALS = (
    "in_per_second",
    "out_per_second",
    "latency_p95_seconds",
    "backlog_events",
    "backlog_seconds",
    "shed_share",
    "console_available",
    "nodes_in_use",
    "workers_busy",
    "workers_at_work",
    "worker_slots",
    "dead_letters",
)
PER_KIND = {
    "queues": (
        "in_per_second",
        "out_per_second",
        "waiting_events",
        "wait_seconds",
        "latency_p95_seconds",
        "dead_letters",
    ),
    "nodes": ("utilisation", "age_seconds", "in_per_second", "out_per_second", "memory_bytes"),
    "hosts": ("busy", "at_work", "slots"),
    "loops": ("measured", "setpoint", "actuator"),
    "plants": ("tasks", "in_per_second", "latency_seconds"),
}
PER_CONTAINER = ("points",)
OPERATOR = ("parallelism",)
GROUP = ("lag_seconds", "lag_events", "in_per_second", "out_per_second")
MAX_GROUPS = 100  # metrics of a plant, by name
SENSOR = ("value",)
BAND = ("low", "high")
APPLICATION = (
    "in_per_second",
    "kept_per_second",
    "latency_p95_seconds",
    "watermark_lag_seconds",
    "waiting_events",
    "batch_seconds",
    "shed_share",
)
PIPELINE = (
    "age_seconds",
    "in_per_second",
    "kept_per_second",
    "alerts_per_second",
    "batch_seconds",
    "watermark_lag_seconds",
    "waiting_events",
    "result_free_bytes",
)


def iterate_figures(snapshot: Snapshot) -> Iterator[tuple[str, float]]:
    """Return the snapshot's known numbers by series."""
    yield from _iterate_numbers("totals", snapshot.totals, TOTALS)
    yield from _iterate_numbers("pipeline", snapshot.pipeline, PIPELINE)
    for name, application in snapshot.pipeline.applications.items():
        yield from _list_shedding_series(f"pipeline.applications.{name}", application)
        for operator, document in application.operators.items():
            yield from _iterate_numbers(f"pipeline.applications.{name}.operators.{operator}", document, OPERATOR)
    for kind, names in PER_KIND.items():
        for each, document in getattr(snapshot, kind).items():
            yield from _iterate_numbers(f"{kind}.{each}", document, names)
    for plant, status in snapshot.plants.items():
        for group in sorted(status.live_groups)[:MAX_GROUPS]:
            yield from _iterate_numbers(f"plants.{plant}.groups.{group}", status.groups[group], GROUP)
        for sensor, value in status.sensors.items():
            if value.error is None:
                yield from _iterate_numbers(f"plants.{plant}.sensors.{sensor}", value, SENSOR)
    yield from _iterate_band_figures(snapshot.bands)
    for name, node in snapshot.nodes.items():
        if node.state in STATES:
            yield f"nodes.{name}.state", STATES.index(node.state)
    for name, queue in snapshot.queues.items():
        for place, container in queue.containers.items():
            yield from _iterate_numbers(f"queues.{name}.containers.{place}", container, PER_CONTAINER)


def _iterate_band_figures(bands: ExpectedBands) -> Iterator[tuple[str, float]]:
    for rate, band in bands.totals.items():
        yield from _iterate_numbers(f"bands.totals.{rate}", band, BAND)
    for queue, rates in bands.queues.items():
        for rate, band in rates.items():
            yield from _iterate_numbers(f"bands.queues.{queue}.{rate}", band, BAND)


def _list_shedding_series(prefix: str, application: ApplicationStatus) -> Iterator[tuple[str, float]]:
    """Return the series by pattern of an application that has ever shed events."""
    if application.shed_events:
        yield from _iterate_numbers(prefix, application, ("shed_share", "latency_p95_seconds"))
        for name, pattern in application.patterns.items():
            yield from _iterate_numbers(f"{prefix}.patterns.{name}", pattern, ("shed_share",))


def build_stream_entry(snapshot: Snapshot) -> dict[FieldT, EncodableT]:
    """Return a stream entry of the snapshot: series → number as short text."""
    return {name: f"{value:.10g}" for name, value in iterate_figures(snapshot)}


def append(pipe: redis.Redis, snapshot: Snapshot) -> None:
    """Append the snapshot's row. The entry's id (the server's clock, ms) is its time."""
    pipe.xadd(keys.METRICS, build_stream_entry(snapshot), maxlen=RETAINED_ROWS, approximate=True)


def read_columns(
    control: redis.Redis, since_seconds: float, until_seconds: float, series: Collection[str] | None = None
) -> dict[str, list[float | None]]:
    """Return `{"at": [seconds …], series: [number or None …]}` of the rows in the time range.

    The range is in seconds since 1970, both ends included. `series` selects and orders the columns; without it, the
    result has all series of the range. A series without any value is a column of None.
    """
    wanted = None if series is None else list(dict.fromkeys(series))
    columns_by_name: dict[str, list[float | None]] = {name: [] for name in wanted or ()}
    at: list[float | None] = []
    for entry_id, fields in _iterate_rows(control, since_seconds, until_seconds):
        for name in wanted if wanted is not None else [name.decode() for name in fields]:
            column = columns_by_name.setdefault(name, [])
            # A series that first occurs here (a new queue) is padded up to this row.
            column.extend([None] * (len(at) - len(column)))
            # Only the requested series are parsed: a row has many times as many.
            text = fields.get(name.encode())
            column.append(None if text is None else float(text))
        at.append(int(entry_id.split(b"-")[0]) / 1000)
    for column in columns_by_name.values():
        column.extend([None] * (len(at) - len(column)))
    return {"at": at, **columns_by_name}


def _iterate_rows(control: redis.Redis, since_seconds: float, until_seconds: float) -> Iterator[tuple[bytes, Any]]:
    start: str | bytes = str(max(0, round(since_seconds * 1000)))
    end = str(max(0, round(until_seconds * 1000)))
    while True:
        entries = cast(Entries, control.xrange(keys.METRICS, start, end, CHUNK_ROWS))
        yield from entries
        if len(entries) < CHUNK_ROWS:
            return
        start = b"(" + entries[-1][0]


def _iterate_numbers(prefix: str, document: StoredDocument, names: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    for name in names:
        value = getattr(document, name)
        if checks.is_number(value):
            yield f"{prefix}.{name}", value
