"""Two hours of the plant's metrics, a row per second, written by the observer and read back as columns.

A series is named by its path in the snapshot: `totals.in_per_second`, `queues.alert.waiting_events`,
`queues.alert.containers.n1.points`, `nodes.n1.utilisation`, `pipeline.in_per_second`,
`loops.worker_rate/alert/n1.actuator`. A state is its index in `node_state.STATES`. A value that is unknown in a second
is missing in its row, and None in its column.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import redis
from redis.typing import EncodableT, FieldT

from common import checks
from common.stored_document import StoredDocument, list_recorded
from queues import keys
from queues.control.replies import expect_bytes
from queues.nodes.node_state import STATES
from workers.documents.snapshot import Snapshot

RETAINED_ROWS = 7_200
CHUNK_ROWS = 1_000
MAX_GROUPS = 100  # metrics of a plant, by name


def iterate_figures(snapshot: Snapshot) -> Iterator[tuple[str, float]]:
    """Return the snapshot's known numbers by series: the fields that its documents declare as recorded."""
    yield from _iterate_recorded("totals", snapshot.totals)
    yield from _iterate_recorded("pipeline", snapshot.pipeline)
    for name, application in snapshot.pipeline.applications.items():
        prefix = f"pipeline.applications.{name}"
        if application.shed_events:  # it has ever shed events
            yield from _iterate_recorded(prefix, application)
            yield from _iterate_rows(f"{prefix}.patterns", application.patterns)
        yield from _iterate_rows(f"{prefix}.operators", application.operators)
    yield from _iterate_rows("queues", snapshot.queues)
    yield from _iterate_rows("nodes", snapshot.nodes)
    yield from _iterate_rows("hosts", snapshot.hosts)
    yield from _iterate_rows("loops", snapshot.loops)
    yield from _iterate_rows("plants", snapshot.plants)
    for plant, status in snapshot.plants.items():
        groups = {group: status.groups[group] for group in sorted(status.live_groups)[:MAX_GROUPS]}
        yield from _iterate_rows(f"plants.{plant}.groups", groups)
        reliable = {name: sensor for name, sensor in status.sensors.items() if sensor.error is None}
        yield from _iterate_rows(f"plants.{plant}.sensors", reliable)
    yield from _iterate_rows("bands.totals", snapshot.bands.totals)
    for queue, rates in snapshot.bands.queues.items():
        yield from _iterate_rows(f"bands.queues.{queue}", rates)
    for name, node in snapshot.nodes.items():
        if node.state in STATES:
            yield f"nodes.{name}.state", STATES.index(node.state)
    for name, queue_status in snapshot.queues.items():
        yield from _iterate_rows(f"queues.{name}.containers", queue_status.containers)


def _iterate_rows(prefix: str, rows: Mapping[str, StoredDocument]) -> Iterator[tuple[str, float]]:
    for name, row in rows.items():
        yield from _iterate_recorded(f"{prefix}.{name}", row)


def _iterate_recorded(prefix: str, document: StoredDocument) -> Iterator[tuple[str, float]]:
    for name in list_recorded(type(document)):
        value = getattr(document, name)
        if checks.is_number(value):
            yield f"{prefix}.{name}", value


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
    for entry_id, fields in _iterate_entries(control, since_seconds, until_seconds):
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


def _iterate_entries(control: redis.Redis, since_seconds: float, until_seconds: float) -> Iterator[tuple[bytes, Any]]:
    start: str | bytes = str(max(0, round(since_seconds * 1000)))
    end = str(max(0, round(until_seconds * 1000)))
    while True:
        entries = expect_bytes(control).xrange(keys.METRICS, start, end, CHUNK_ROWS)
        yield from entries
        if len(entries) < CHUNK_ROWS:
            return
        start = b"(" + entries[-1][0]
