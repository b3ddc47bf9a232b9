"""The number of processes of each worker host that handles events.

The law also sizes each pool of an attached plant that reports its completions (a worker of a Celery app).

These loops start in advise. An exploration removes workers before it adds any, at a time that no person chose, and each
process uses memory of its host. People therefore enable the loops pool by pool, within a range that they know. Until
then a loop measures at the current size.
"""

from collections.abc import Mapping
from typing import Any

from controllers.concurrency.law import LAW
from controllers.concurrency.parameters import ConcurrencyObservation
from controllers.framework.guard import ObservationQuality
from controllers.framework.sensed import Counters, Measurement
from controllers.parallelism.advice_value import AdvisedOperator
from queues.pausing import CONSUMPTION
from workers.control.parts import attached_pools
from workers.control.parts.kind import (
    AdviceMeasure,
    Display,
    Lanes,
    LoopDefaults,
    LoopKind,
    LoopStart,
    LoopTuning,
    PlantInventory,
    Targets,
)
from workers.control.parts.operators import keep_plant
from workers.documents.hosts import HostStatus, PoolWork
from workers.documents.loops import LoopStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.plants.foreign.kind import AdapterKind
from workers.plants.plant import Plant

ROLE = "jobs"
# A worker process uses about 50 MB by itself. Handlers that call slow services may want more processes and set that.
MAX_PROCESSES = 32
# Hosts report every second. A pool that is too small for a new mix of work grows within some intervals.
INTERVAL_SECONDS = 2
ATTACHED_INTERVAL_SECONDS = 5
# Shortly before an unfulfilled reduction counts as missed, the pool is taken to have reached its smallest
# possible size.
PATIENT_SHARE = 0.9
# If the oldest event has waited for this time, the pool does not keep up.
WAITING_SECONDS = 5.0
Document = Mapping[str, Any]


def measure_target(target: Document, snapshot: Snapshot, before: Counters | None, now_seconds: float) -> Measurement:
    """Return the observation of the pool since the last one.

    The times are of events that completed while all processes were busy (`workers.pool.departures`); `seconds` is how
    long they were. `waiting` tells whether a queue of the role does not keep up. Samples are numbered, so that none is
    used twice; after a restart of the pool (another pid of its host, another count) all are new. `epoch` is the newest
    exploration of the other hosts of the role, which share nodes and services. `mean_threads` is the mean over all
    controlled hosts. Pools of attached plants explore independently.
    """
    if "plant" in target:
        return _observe_attached(target, snapshot, before, now_seconds)
    row = snapshot.hosts.get(target.get("host", ""))
    done = (row.done if row else None) or PoolWork()
    loops = [loop for loop in snapshot.loops.values() if loop.law == LAW.name and "host" in loop.target]
    samples, seconds = _select_samples(before, done, {"pid": row.pid if row else None})
    observation = ConcurrencyObservation(
        threads=row.slots if row else 0,
        interdeparture_seconds=samples,
        seconds=seconds,
        epoch=_find_newest_epoch(loops, target),
        mean_threads=_mean_threads(loops, target, snapshot),
        trouble=(row.trouble or None) if row else None,
        waiting=any(_is_behind(queue) for queue in snapshot.queues.values() if queue.kind == ROLE),
        elapsed_seconds=_elapsed_seconds(before, now_seconds),
        mix=done.mix,
        open_seconds=done.open_seconds,
        open_events=done.open_events,
    )
    # A host that was silent has no new samples when it reports again: its samples were used already.
    kept = (_build_counters(done, {"pid": row.pid}) if row else dict(before or {})) | {"at": now_seconds}
    return Measurement.of(observation, check_measurement(target, snapshot, row, now_seconds), kept)


def _observe_attached(target: Document, snapshot: Snapshot, before: Counters | None, now_seconds: float) -> Measurement:
    pool = attached_pools.find_pool(target, snapshot)
    done = pool.row.completions.get(target["operator"]) if pool else None
    life = {"since": done.since if done else None}
    samples, seconds = _select_samples(before, done or PoolWork(), life)
    observation = ConcurrencyObservation(
        threads=pool.tasks if pool else 0,
        interdeparture_seconds=samples,
        seconds=seconds,
        trouble=_explain_no_decrease(target, pool),
        ends_idle=bool(pool and pool.ends_idle),
        waiting=pool is not None and (pool.wait_seconds or 0.0) >= WAITING_SECONDS,
        elapsed_seconds=_elapsed_seconds(before, now_seconds),
        mix=done.mix if done else {},
        open_seconds=done.open_seconds if done else None,
        open_events=done.open_events if done else None,
    )
    seen = attached_pools.check_measurement(LAW.name, target, snapshot, now_seconds)
    if seen.invalid is None and done is None:
        seen = ObservationQuality(seen.age_seconds, idle=f"{target['operator']} reports no completions")
    kept = (_build_counters(done, life) if done else dict(before or {})) | {"at": now_seconds}
    return Measurement.of(observation, seen, kept)


def _explain_no_decrease(target: Document, pool: attached_pools.ObservedPool | None) -> str | None:
    order = pool.row.orders.get(target["operator"]) if pool else None
    is_less = pool is not None and order is not None and order.tasks < pool.tasks
    return "only idle processes are stopped" if is_less and pool is not None and pool.ends_idle else None


def _is_behind(queue: QueueStatus) -> bool:
    """Return whether work waits for a process: the oldest event for too long, or more and more events."""
    if any(pause.part == CONSUMPTION for pause in queue.pauses):
        return False
    rises = queue.trend == "rising" and (queue.waiting_events or 0) > (queue.in_per_second or 0.0)
    return rises or (queue.wait_seconds or 0.0) >= WAITING_SECONDS


def _elapsed_seconds(before: Counters | None, now_seconds: float) -> float | None:
    at = (before or {}).get("at")
    return None if at is None else max(0.0, now_seconds - at)


def _build_counters(done: PoolWork, life: Document) -> dict[str, float]:
    counters = {**life, "seq": done.seq, "full_seconds": done.full_seconds}
    return {key: value for key, value in counters.items() if value is not None}


def _select_samples(before: Counters | None, done: PoolWork, life: Document) -> tuple[list[float], float]:
    """Return the new samples of the pool's current size, up to the maximum kept, and how long they were (s).

    life: identifies the pool; it has another value after a restart.
    """
    seq, full_seconds, recent = done.seq or 0, done.full_seconds or 0.0, done.recent_seconds
    first, seconds_before = 0.0, 0.0
    if before is not None and all(before.get(key) == value for key, value in life.items()):
        first, seconds_before = before.get("seq", 0), before.get("full_seconds", 0.0)
    fresh = min(max(0, int(seq - first)), len(recent))
    return list(recent[len(recent) - fresh :]), round(max(0.0, full_seconds - seconds_before), 3)


def _find_newest_epoch(loops: list[LoopStatus], target: Document) -> int | None:
    """Return the newest exploration of another host that is controlled, too."""
    others = [loop for loop in loops if loop.target.get("host") != target.get("host") and loop.mode == Loop.Mode.AUTO]
    epochs = [loop.terms.get("epoch") for loop in others]
    return max((epoch for epoch in epochs if epoch is not None), default=None)


def _mean_threads(loops: list[LoopStatus], target: Document, snapshot: Snapshot) -> float | None:
    """Return the mean size of the controlled hosts including this one; None where it is the only one."""
    steered = {loop.target.get("host", "") for loop in loops if loop.mode == Loop.Mode.AUTO}
    rows = [snapshot.hosts[host] for host in steered if host in snapshot.hosts]
    has_others = len(rows) > 1 and target.get("host") in steered
    return sum(row.slots for row in rows) / len(rows) if has_others else None


def collect_readings(target: Document, snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the readings by which the effect of a pool's size is judged."""
    if "plant" in target:
        return _collect_attached_readings(target, snapshot)
    row = snapshot.hosts.get(target.get("host", ""))
    if row is None:
        return None
    per_second = row.done.per_second if row.done else None
    return {"throughput_per_second": per_second, "threads": row.slots, "node_state": None}


def _collect_attached_readings(target: Document, snapshot: Snapshot) -> dict[str, Any] | None:
    pool = attached_pools.find_pool(target, snapshot)
    if pool is None:
        return None
    done = pool.row.completions.get(target["operator"])
    per_second = done.per_second if done else None
    return {"throughput_per_second": per_second, "threads": pool.tasks, "node_state": None}


def check_measurement(
    target: Document, snapshot: Snapshot, row: HostStatus | None, now_seconds: float
) -> ObservationQuality:
    """Return the age of the host's report, and why the measurement is invalid."""
    at_seconds, host = snapshot.at, target.get("host")
    age = None if at_seconds is None else abs(now_seconds - at_seconds)
    if row is None or row.age_seconds is None or age is None:
        return ObservationQuality(None, f"worker host {host} is not reporting")
    if not row.resizable:
        return ObservationQuality(age, f"the pool of {host} cannot add or remove processes")
    return ObservationQuality(age + row.age_seconds)


def set_threads(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Request the entry's number of processes from the host.

    The request expires unless it is kept alive, so that a loop that dies during an exploration does not leave the pool
    at a trial size. A value that is set at an attached plant stays.
    """
    threads = int(entry.action["threads"])
    if "plant" in loop.target:
        attached_pools.set_pool(threads, loop, plant)
    else:
        plant.resize_pool(loop.target["host"], threads)


def keep_threads(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Keep the request alive while the loop runs."""
    if "plant" in loop.target:
        keep_plant(entry, loop, plant)
    else:
        plant.keep_pool(loop.target["host"])


def list_targets(present: PlantInventory) -> Targets:
    """Return the reporting worker hosts of role jobs and the attached pools that report completions.

    Their loops start at the current size.
    """
    starts = {
        f"{LAW.name}/{name}": LoopStart(
            {"host": name}, **_build_start_values(report.slots, 1, max(MAX_PROCESSES, report.slots))
        )
        for name, report in present.hosts.items()
        if report.role == ROLE
    }
    elsewhere = {
        name: _start_elsewhere(plant, operator, kind, present)
        for name, plant, operator, kind in attached_pools.iterate_adjustable_pools(
            LAW.name, present, lambda kind: kind.completes
        )
    }
    return Targets({**starts, **elsewhere}, f"the worker host is not reporting, or {attached_pools.GONE}")


def _start_elsewhere(plant: str, operator: str, kind: AdapterKind, present: PlantInventory) -> LoopStart:
    """Return the start of a loop at an attached plant, in the range that all its loops start with."""
    pool = attached_pools.find_visible_pool(plant, operator, present)
    usual_most = kind.pace.maximum if kind.pace else MAX_PROCESSES
    values = _build_start_values(pool.tasks if pool else 1, *attached_pools.compute_task_limits(pool, usual_most))
    patience = max(1, int(PATIENT_SHARE * kind.patience.fewer_seconds / ATTACHED_INTERVAL_SECONDS))
    values["parameters"]["patience"] = patience
    return attached_pools.start_of(plant, operator, **values, interval_seconds=ATTACHED_INTERVAL_SECONDS)


def _build_start_values(slots: int, least: int, most: int) -> dict[str, Any]:
    return {
        "parameters": {"start": max(least, slots), "minimum": least, "maximum": most},
        "guard": {"minimum": float(least), "maximum": float(most)},
    }


def _list_advised_processes(observed: Document, action: Document, terms: Document) -> dict[str, AdvisedOperator]:
    """Return the current and the advised processes of the pool. The loop does not measure waiting events."""
    processes = int(observed["threads"])
    return {"pool": AdvisedOperator(tasks=processes, advised=int(action.get("threads", processes)))}


def describe_probe(row: LoopStatus) -> str:
    """Return the size that the loop tests now and the progress of the test; empty for no test."""
    terms, acts = row.terms, row.mode == Loop.Mode.AUTO
    threads, usual = terms.get("threads"), terms.get("usual_threads")
    if not acts or threads is None or usual is None or threads == usual:
        return ""
    needed, left = terms.get("needed_samples"), terms.get("undone_after_seconds")
    progress = "" if needed is None else f": {terms.get('samples', 0)} of {needed} samples"
    end = "" if left is None else f", undone in {left:,.0f} s"
    size = "1 process" if threads == 1 else f"{threads} processes"
    return f"Testing {size} instead of {usual}{progress}{end}"


KIND = LoopKind(
    law=LAW,
    sensor=measure_target,
    readings=collect_readings,
    actuator=set_threads,
    keeper=keep_threads,
    recall=lambda loop, mode, observation: {"steered": mode == Loop.Mode.AUTO},
    targets=list_targets,
    interval_seconds=INTERVAL_SECONDS,
    defaults=LoopDefaults(
        mode=Loop.Mode.ADVISE,
        # A sample is the mean of several completions (`workers.pool.departures`), so fewer samples suffice. Points
        # known to 2 % resolve a step's 14 % well, and the pool spends little time at a trial size. At first one more
        # step is tried each minute, because the services that the workers call may have been scaled.
        parameters={
            "method": "explorer",
            "initial_samples": 16,
            "probe_error": 0.02,
            "trial_seconds": 60.0,
            "probe_seconds": 120.0,
            # Half a minute, because a process ends only after its work.
            "patience": 15,
        },
        # Hosts report each second, and their reports are checked each second.
        guard={"stale_seconds": 5.0},
    ),
    display=Display(
        Lanes("Completions, events/s", "Processes", "in the pool", has_reference=False),
        of_each="worker host, pool of an attached plant that reports completions",
        purpose="Runs the fewest processes that keep a pool near its maximum throughput.",
        formula="X(n) = λ n / (1 + σ (n - 1) + κ n (n - 1)), or a saturating station; smallest n with X(n) ≥ "
        "keep · best",
        main=("method", "keep", "minimum", "maximum", "steady_seconds"),
        topics=(
            (
                "Exploration",
                (
                    "start",
                    "initial_samples",
                    "most_samples",
                    "max_factor",
                    "change",
                    "trial_seconds",
                    "probe_seconds",
                    "patience",
                    "alpha",
                ),
            ),
            ("TCC steps", ("p", "q", "w", "r", "aim", "beta")),
            ("Curve", ("probe_error", "fit_tolerance", "verify_tolerance", "verifications", "peak_share")),
        ),
        measured="terms.throughput_per_second",
        terms=(
            "phase",
            "steps",
            "throughput_per_second",
            "threads",
            "usual_threads",
            "samples",
            "needed_samples",
            "undone_after_seconds",
            "epoch",
        ),
        activity=describe_probe,
        lasting="threads",
        brief=lambda action: f"processes: {action['threads']}" if "threads" in action else "",
        changes="the processes",
        desired=lambda observation, action: {"threads": action.get("threads", observation["threads"])},
    ),
    # the price of one process of the pool for one hour
    tuning=LoopTuning(
        scenario="concurrency-live",
        unit_hours=lambda target, snapshot, values: 1.0,
        advice=AdviceMeasure("worker", _list_advised_processes, is_bounded=True),
    ),
)
