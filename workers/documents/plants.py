"""Registered plants, who steers one, and the forecast of what comes, as the snapshot has them."""

from typing import Any

from queues.stored_document import StoredDocument


class PlantHolder(StoredDocument, frozen=True, kw_only=True, gc=False):
    """Who steers a plant's tasks through the control API; until: seconds since 1970, None: nobody
    knows.
    """

    holder: str | None = None
    until: float | None = None


class PlantStatus(StoredDocument, frozen=True, kw_only=True):
    """Another plant. state: seen, stale or unseen; error: what went wrong when it was observed
    last. tasks: that can be set. latency_seconds: of its slowest path. topology: as
    `controllers.parallelism.measured_topology` writes and checks it; None while it was never seen.
    """

    kind: str = ""
    state: str = "unseen"
    age_seconds: float | None = None
    error: str | None = None
    tasks: int | None = None
    in_per_second: float | None = None
    latency_seconds: float | None = None
    topology: dict[str, Any] | None = None
    steered_by: PlantHolder | None = None


class LoadForecast(StoredDocument, frozen=True, kw_only=True):
    """What will be offered to an application: means and deviations, events/s, one a window from
    `at` on; None with `refused` saying why. days: of the past that it rests on. trained_until: a
    day, of its training sets.
    """

    at: float
    window_seconds: float
    mean_per_second: list[float] | None = None
    deviation_per_second: list[float] | None = None
    days: float = 0.0
    trained_until: str | None = None
    refused: str | None = None
