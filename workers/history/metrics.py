"""Two hours of the plant's metrics, a row per second, written by the observer and read back as columns.

A series is named by its path in the snapshot: `totals.in_per_second`, `queues.alert.waiting_events`,
`queues.alert.containers.n1.points`, `nodes.n1.utilisation`, `pipeline.in_per_second`,
`loops.worker_rate/alert/n1.actuator`. A state is its index in `node_state.STATES`. A value that is unknown in a second
is NaN in its row and in its column.

A row contains only numbers. The names of the series are many times as long, so rows share lists of names, which a hash
stores by digest. A page that draws an hour therefore reads about 1 kB for each second. In rows of older versions, each
number has the name of its series.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np
import redis
from numpy.typing import NDArray

from common import checks
from common.stored_document import StoredDocument, list_recorded
from queues import keys
from queues.control.replies import Entries, Fields, expect_bytes
from queues.nodes.node_state import STATES
from workers.documents.snapshot import Snapshot

RETAINED_ROWS = 7_200
CHUNK_ROWS = 1_000
MAX_GROUPS = 100  # metrics of a plant, by name
LIST, NUMBERS = b"list", b"numbers"  # fields of a row: the digest of its list of series, and a number for each of them
NUMBER = "<f8"
MAX_LISTS, SPARE_SERIES = 64, 100
Floats: TypeAlias = NDArray[np.float64]


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


class MetricWriter:
    """Appends rows. A list keeps its order and the series that ended, so that few lists are needed."""

    def __init__(self, control: redis.Redis) -> None:
        self._control = control
        self._series: list[str] = []

    def append(self, pipe: redis.Redis, snapshot: Snapshot, entry_id: str = "*") -> None:
        """Append the snapshot's row. The entry's id (by default the server's clock, ms) is its time."""
        figures = dict(iterate_figures(snapshot))
        self._add_series(figures)
        listed = json.dumps(self._series)
        digest = hashlib.blake2b(listed.encode(), digest_size=8).hexdigest()
        numbers = np.array([figures.get(name, np.nan) for name in self._series], dtype=NUMBER)
        pipe.hsetnx(keys.METRIC_SERIES, digest, listed)
        row: dict[bytes, str | bytes] = {LIST: digest, NUMBERS: numbers.tobytes()}
        pipe.xadd(keys.METRICS, row, id=entry_id, maxlen=RETAINED_ROWS, approximate=True)  # type: ignore[arg-type]

    def _add_series(self, figures: Mapping[str, float]) -> None:
        series = self._series or _load_newest_series(self._control)
        added = list(figures.keys() - set(series))
        if len(series) + len(added) > 2 * len(figures) + SPARE_SERIES:
            series, added = [], list(figures)
        if added:
            _remove_unused_lists(self._control)
        self._series = [*series, *sorted(added)]


def _load_newest_series(control: redis.Redis) -> list[str]:
    newest = expect_bytes(control).xrevrange(keys.METRICS, count=1)
    return [name for rows in iterate_rows(control, newest) for name in rows.series]


def _remove_unused_lists(control: redis.Redis) -> None:
    """Remove the lists that no retained row uses, if there are too many."""
    if control.hlen(keys.METRIC_SERIES) < MAX_LISTS:
        return
    used = {fields.get(LIST) for _, fields in _iterate_entries(control, "-", "+")}
    unused = [digest for digest in expect_bytes(control).hkeys(keys.METRIC_SERIES) if digest not in used]
    if unused:
        control.hdel(keys.METRIC_SERIES, *unused)


class MetricRows(NamedTuple):
    """Adjacent rows with the same series: the time of each (ms), and a row of numbers for each time."""

    at_ms: NDArray[np.int64]
    series: list[str]
    numbers: Floats


def iterate_rows(control: redis.Redis, entries: Iterable[tuple[bytes, Fields]]) -> Iterator[MetricRows]:
    """Return the rows in entries of the stream, without rows whose list of series was lost."""
    for key, group in groupby(entries, key=lambda entry: entry[1].get(LIST) or tuple(entry[1])):
        ids, rows = zip(*group, strict=True)
        at_ms = np.array([int(entry_id.split(b"-")[0]) for entry_id in ids], dtype=np.int64)
        if isinstance(key, tuple):
            older = np.array([[float(value) for value in fields.values()] for fields in rows])
            yield MetricRows(at_ms, [name.decode() for name in key], older)
        elif listed := expect_bytes(control).hget(keys.METRIC_SERIES, key.decode()):
            series = json.loads(listed)
            numbers = np.frombuffer(b"".join(fields[NUMBERS] for fields in rows), dtype=NUMBER)
            yield MetricRows(at_ms, series, numbers.reshape(len(rows), len(series)))


def read_columns(
    control: redis.Redis, since_seconds: float, until_seconds: float, series: Collection[str]
) -> tuple[Floats, dict[str, Floats]]:
    """Return the times of the rows in the time range, and the column of each series, NaN where it is unknown.

    Times are in seconds since 1970, and both ends of the range are included.
    """
    times: list[Floats] = [np.empty(0)]
    parts: dict[str, list[Floats]] = {name: [np.empty(0)] for name in series}
    ends = (str(max(0, round(seconds * 1000))) for seconds in (since_seconds, until_seconds))
    for rows in iterate_rows(control, _iterate_entries(control, *ends)):
        times.append(rows.at_ms / 1000)
        places = {name: place for place, name in enumerate(rows.series)}
        unknown = np.full(len(rows.at_ms), np.nan)
        for name, columns in parts.items():
            columns.append(rows.numbers[:, places[name]] if name in places else unknown)
    return np.concatenate(times), {name: np.concatenate(columns) for name, columns in parts.items()}


def _iterate_entries(control: redis.Redis, first: str, last: str) -> Iterator[tuple[bytes, Fields]]:
    while True:
        entries: Entries = expect_bytes(control).xrange(keys.METRICS, first, last, CHUNK_ROWS)
        yield from entries
        if len(entries) < CHUNK_ROWS:
            return
        first = f"({entries[-1][0].decode()}"
