"""Observes the registered plants, each in a thread of its own, so that a slow plant delays no other.

The results are in the snapshot under `plants`, so that loops decide on the same instant that pages show. An adapter's
report is converted to a part of the snapshot here, once per observation. It must be valid: text that is not Unicode, a
number beyond all bounds, or more than MAX_BYTES from one plant would break the snapshot of all. A plant that has not
answered for `stale_seconds` is stale: its last topology is shown as such, and nothing is decided on it. A plant that is
observed less often than every OBSERVE_SECONDS gets that much more time.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import redis

from common import checks
from common.errors import BadInput, WeirError
from common.stored_document import BadDocument, decode_document, encode_document, replace_fields
from controllers.parallelism.measured_topology import MeasuredTopology
from workers.documents.plants import PlantSection, PlantStatus, SensorStatus, SetValue
from workers.plants.foreign.adapters import create_adapter, list_adapters
from workers.plants.foreign.answer_limit import compute_stale_seconds
from workers.plants.foreign.group_measures import GroupMeasures
from workers.plants.foreign.kind import SECTIONS_SECONDS, Adapter, RestoredValue
from workers.plants.foreign.leases import renew_seconds
from workers.plants.models import RegisteredPlant
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

OBSERVE_SECONDS = 2.0
RELOAD_SECONDS = 5.0
CLOSE_SECONDS = 5.0
MAX_BYTES = 4 * 2**20  # bytes of one plant in the snapshot
MAX_ERROR = 500
SEEN, STALE, UNSEEN = "seen", "stale", "unseen"
logger = logging.getLogger(__name__)


class PlantObserver:
    """The observation of one plant: its last topology, and what failed since."""

    def __init__(
        self, row: RegisteredPlant, make: Callable[[RegisteredPlant], Adapter], monotonic: Callable[[], float]
    ) -> None:
        self.row, self._make, self._monotonic = row, make, monotonic
        self._adapter: Adapter | None = None
        self._made_at = 0.0  # when the adapter was made, by the monotonic clock
        self._lock = threading.Lock()
        self._seen = PlantStatus(kind=row.kind)
        self._seen_at: float | None = None
        self._began_at = monotonic()
        self._error: str | None = None
        self._sections: Sequence[PlantSection] = ()
        self._answered: Sequence[PlantSection] = ()  # sections from its adapter, and when they were returned
        self._answered_at: float | None = None
        self._set_values: Sequence[SetValue] = ()
        self._asked_at: float | None = None  # error of its sections
        self._sensors: Mapping[str, SensorStatus] = {}
        self._known_at: dict[str, float] = {}  # when each sensor was read
        self._renewed_at: float | None = None  # when the leases were renewed
        self._restored: list[RestoredValue] = []  # restored there, and not taken yet

    def observe(self) -> None:
        """Observe once. Any failure is kept as a sentence."""
        try:
            if self._adapter is None:
                self._made_at = self._monotonic()
                self._adapter = self._make(self.row)
            self._renew_leases(self._adapter)
            topology, at = replace(self._adapter.get_topology(), plant=self.row.name), self._monotonic()
            self._keep(self._build_status(self._adapter, topology), at)
            sections = self._refresh_sections(self._adapter)
            if sections is not self._sections:
                self._sections = sections
                self._keep(self._build_status(self._adapter, topology), at)
        except WeirError as error:
            self._keep_error(str(error))
            self._leave_silent(error)
        except Exception as error:  # a failing adapter must not end the observation of its plant
            logger.exception("The observation of plant %s failed.", self.row.name)
            self._keep_error(f"the observation failed ({type(error).__name__}).")
        if self._adapter is not None:
            sensors = self._adapter.get_sensor_statuses()
            now = self._monotonic()
            with self._lock:
                self._sensors = sensors
                for name, sensor in sensors.items():
                    if sensor.known_value is not None or name not in self._known_at:
                        self._known_at[name] = now

    def take_restored(self) -> list[RestoredValue]:
        """Return what was restored at the plant since the last call, because a lease had ended there."""
        with self._lock:
            restored, self._restored = self._restored, []
        return restored

    def _renew_leases(self, adapter: Adapter) -> None:
        """Renew the leases at their interval, also of a plant that can't be observed."""
        now = self._monotonic()
        if self._renewed_at is not None and now - self._renewed_at < renew_seconds():
            return
        try:
            restored = adapter.renew_leases()
        except (WeirError, redis.RedisError) as error:  # tried again at the next observation
            logger.warning("The leases at plant %s can't be renewed: %s", self.row.name, error)
            return
        self._renewed_at = now
        with self._lock:
            self._restored += restored

    def _keep(self, found: PlantStatus, at: float) -> None:
        with self._lock:
            self._seen, self._seen_at, self._error = found, at, None

    def _leave_silent(self, error: WeirError) -> None:
        """Close the adapter of a silent plant: its address may have changed."""
        longest = getattr(self._adapter, "anew_seconds", None)
        if longest is None or not isinstance(error, PlantUnavailable):
            return
        if self._monotonic() - max(self._made_at, self._seen_at or 0.0) >= longest:
            adapter, self._adapter = self._adapter, None
            _close(adapter)

    def build_status(self) -> PlantStatus:
        """Return the status for the snapshot."""
        with self._lock:
            topology, seen_at, error = self._seen, self._seen_at, self._error
            sensors, known_at = dict(self._sensors), dict(self._known_at)
        now = self._monotonic()
        age_seconds = None if seen_at is None else round(now - seen_at, 1)
        longest = compute_stale_seconds() + max(0.0, (self.observe_seconds or 0.0) - OBSERVE_SECONDS)
        state = UNSEEN if age_seconds is None else STALE if age_seconds > longest else SEEN
        if state != SEEN:  # the last state is shown, and none of its figures count
            topology = replace_fields(topology, tasks=None, in_per_second=None, latency_seconds=None)
        return replace_fields(
            topology,
            state=state,
            age_seconds=age_seconds,
            silent_seconds=round(now - (self._began_at if seen_at is None else seen_at), 1),
            error=error,
            sensors={
                name: replace_fields(sensor, silent_seconds=round(now - known_at[name], 1))
                for name, sensor in sensors.items()
            },
        )

    @property
    def observe_seconds(self) -> float | None:
        """Return the interval that the adapter requests."""
        return getattr(self._adapter, "observe_seconds", None)

    def close(self) -> None:
        _close(self._adapter)

    def _build_status(self, adapter: Adapter, topology: MeasuredTopology) -> PlantStatus:
        """Return the status. Raise `InvalidPlantResponse` for data that can't be part of a snapshot."""
        status = replace_fields(
            adapter.get_details(),
            kind=self.row.kind,
            topology=topology.to_document(),
            sections=list(self._sections),
            set_values=list(self._set_values),
            guard=adapter.get_guard(),
        )
        try:
            text = encode_document(status)
            decode_document(PlantStatus, text, "plant")
            MeasuredTopology.from_document(status.topology)  # in the form that pages and loops read
            if not all(
                checks.make_storable(name) == name for name in topology.operators
            ):  # in the form of their ledger
                raise BadInput("operators", "contain a NUL character in a name")
        except (UnicodeEncodeError, BadDocument, BadInput) as error:
            said = str(error)[:MAX_ERROR]
            raise InvalidPlantResponse(f"{self.row.name} returned data that can't be stored ({said}).") from error
        if len(text) > MAX_BYTES:
            size, most = f"{len(text) / 2**20:.0f} MiB", f"{MAX_BYTES >> 20} MiB"
            raise InvalidPlantResponse(
                f"{self.row.name} returned {size}, more than the limit of {most}. Register a smaller part of the plant."
            )
        return _add_figures(status, topology)

    def _refresh_sections(self, adapter: Adapter) -> Sequence[PlantSection]:
        """Return the sections, requested at their interval; before it has passed, return the last ones."""
        now = self._monotonic()
        if self._asked_at is not None and now - self._asked_at < SECTIONS_SECONDS:
            return self._sections
        self._asked_at = now
        try:
            self._set_values = adapter.list_set_values()
            self._answered, self._answered_at = adapter.list_sections(), now
        except (WeirError, redis.RedisError) as error:  # the measures are valid all the same
            logger.info("The sections of plant %s can't be read: %s", self.row.name, error)
            answered_at = self._answered_at
            old = "" if answered_at is None else f" The tables below are {now - answered_at:.0f} s old."
            said = f"{str(error)[:MAX_ERROR].rstrip('.')}.{old}"
            return [PlantSection(title="Outdated tables", columns=["Reason"], rows=[[said]]), *self._answered]
        return self._answered

    def _keep_error(self, sentence: str) -> None:
        with self._lock:
            self._error = sentence if len(sentence) <= MAX_ERROR else f"{sentence[:MAX_ERROR]}…"


class PlantWatch:
    """One observer for each registered plant; one thread calls `rows` about once per second."""

    def __init__(
        self,
        plants: Callable[[], Iterable[RegisteredPlant]] = list_adapters,
        make: Callable[[RegisteredPlant], Adapter] = create_adapter,
        monotonic: Callable[[], float] = time.monotonic,
        observe_seconds: float = OBSERVE_SECONDS,
    ) -> None:
        self._plants, self._make, self._monotonic = plants, make, monotonic
        self._observe_seconds = observe_seconds
        self._running: dict[str, tuple[PlantObserver, threading.Event, threading.Thread]] = {}
        self._loaded_at: float | None = None
        self._measures = GroupMeasures()

    def collect_rows(self) -> dict[str, PlantStatus]:
        """Return plant → its last status."""
        now = self._monotonic()
        if self._loaded_at is None or now - self._loaded_at >= RELOAD_SECONDS:
            self._loaded_at = now
            self._follow(self._plants())
        watched = {name: observer for name, (observer, *_) in sorted(self._running.items())}
        statuses = {name: observer.build_status() for name, observer in watched.items()}
        measured = self._measures.join_groups(
            statuses, {name: observer.row.options for name, observer in watched.items()}
        )
        return statuses | {
            name: _add_figures(replace_fields(statuses[name], topology=topology.to_document()), topology)
            for name, topology in measured.items()
        }

    def take_restored(self) -> dict[str, list[RestoredValue]]:
        """Return plant → what was restored there since the last call, because Weir renewed its lease too late."""
        restored = {name: observer.take_restored() for name, (observer, *_) in self._running.items()}
        return {name: values for name, values in restored.items() if values}

    def close(self) -> None:
        """Stop the threads; they end when their plants have answered.

        Threads that have not ended within CLOSE_SECONDS (in total) are left to the end of the process.
        """
        threads = [thread for _, _, thread in self._running.values()]
        self._follow(())
        until = self._monotonic() + CLOSE_SECONDS
        for thread in threads:
            thread.join(max(0.0, until - self._monotonic()))

    def _follow(self, rows: Iterable[RegisteredPlant]) -> None:
        """Observe exactly these plants; the observation of a changed plant restarts."""
        wanted = {row.name: row for row in rows}
        for name, (observer, ended, _) in list(self._running.items()):
            fields = ("kind", "url", "options", "secret_environment")
            if name not in wanted or any(
                getattr(wanted[name], field) != getattr(observer.row, field) for field in fields
            ):
                ended.set()
                del self._running[name]
        for name, row in wanted.items():
            if name not in self._running:
                observer, ended = PlantObserver(row, self._make, self._monotonic), threading.Event()
                thread = threading.Thread(target=self._watch, args=(observer, ended), name=f"plant {name}", daemon=True)
                self._running[name] = observer, ended, thread
                thread.start()

    def _watch(self, observer: PlantObserver, ended: threading.Event) -> None:
        while not ended.is_set():
            observer.observe()
            ended.wait(observer.observe_seconds or self._observe_seconds)
        observer.close()


def _close(adapter: Adapter | None) -> None:
    try:
        if adapter is not None:
            adapter.close()
    except Exception:  # a failing adapter must not end the observation of its plant
        logger.exception("Closing an adapter failed.")


def _add_figures(status: PlantStatus, topology: MeasuredTopology) -> PlantStatus:
    """Add the tasks that can be set, the output of sources, and the latency of the slowest path."""
    given = [operator.measure("outputs") for operator in topology.operators.values() if operator.kind == "source"]
    known = [given_operator for given_operator in given if given_operator is not None]
    latencies = [topology.compute_path_latency_seconds(path) for path in topology.paths.values()]
    return replace_fields(
        status,
        tasks=sum(operator.parallelism for operator in topology.operators.values() if operator.fixed is None),
        in_per_second=round(sum(known) / topology.window_seconds, 3) if known else None,
        latency_seconds=max((latency for latency in latencies if latency is not None), default=None),
    )
