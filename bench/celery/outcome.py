"""What came of a load: how long tasks waited, how many worker-seconds that took, and what was lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from bench.celery.stock_workers import StockWorker

OBJECTIVE_SECONDS = 0.8


@dataclass(frozen=True)
class Outcome:
    """Outcome of one baseline. lost: sent tasks that never ended; doubled: tasks that ended more than once."""

    waiting_p95_seconds: float
    waiting_mean_seconds: float
    worker_seconds: float
    lost: int
    doubled: int

    @classmethod
    def build(cls, worker: StockWorker, load: Sequence[tuple[float, float]], worker_seconds: float) -> "Outcome":
        done = worker.count_done()
        waits = sorted(done_task.begun_at - done_task.sent_at for done_task in done)
        ended = {done_task.number for done_task in done}
        return cls(
            waits[int(0.95 * len(waits))], fmean(waits), worker_seconds, len(load) - len(ended), len(done) - len(ended)
        )


def figures(
    outcomes: Mapping[tuple[str, str], Outcome], attached_seconds: Mapping[str, float], brokers: Sequence[str]
) -> dict[str, Any]:
    """Return the rows that `manage.py bench` shows: Weir, its baselines, and the ratio of Weir to each."""
    document: dict[str, dict[str, Any]] = {"figures": {}, "peers": {}, "ratio": {}}
    for broker in brokers:
        baselines = {name: outcome for (of, name), outcome in outcomes.items() if of == broker}
        weir = baselines.pop("weir")
        document["figures"] |= {f"{broker}: attached, s": attached_seconds[broker], **_rows(f"{broker}: weir", weir)}
        for name, outcome in baselines.items():
            document["peers"] |= _rows(f"{broker}: {name}", outcome)
        for name, baseline in compare(weir, baselines).items():
            waiting = weir.waiting_p95_seconds / max(baseline.waiting_p95_seconds, 1e-6)
            document["ratio"][f"{broker}: waiting p95, of {name}"] = waiting
            document["ratio"][f"{broker}: worker-seconds, of {name}"] = weir.worker_seconds / baseline.worker_seconds
    return document


def compare(weir: Outcome, baselines: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """The best fixed size, --autoscale with that number, and --autoscale at equal cost, where there are."""
    fixed = {int(name.split()[1]): each for name, each in baselines.items() if name.startswith("fixed")}
    kept = [size for size, each in fixed.items() if each.waiting_p95_seconds <= OBJECTIVE_SECONDS]
    best = min(kept, default=max(fixed))
    compared_results = {f"the best fixed size ({best})": fixed[best]}
    if (same := baselines.get(f"autoscale {best}")) is not None:
        compared_results[f"autoscale {best}"] = same
    costly = [
        (each.worker_seconds, name)
        for name, each in baselines.items()
        if name.startswith("autoscale") and each.worker_seconds >= weir.worker_seconds
    ]
    if costly:
        compared_results[f"{min(costly)[1]}, at equal cost"] = baselines[min(costly)[1]]
    return compared_results


def _rows(name: str, outcome: Outcome) -> dict[str, float]:
    return {
        f"{name}: waiting p95, s": outcome.waiting_p95_seconds,
        f"{name}: waiting mean, s": outcome.waiting_mean_seconds,
        f"{name}: worker-seconds": outcome.worker_seconds,
        f"{name}: lost": outcome.lost,
        f"{name}: doubled": outcome.doubled,
    }
