"""How many processes each worker host that handles events has.

Its loops begin in advise. An exploration takes workers away before it adds any, at a time nobody chose, and
each process takes memory of its host: that is for people to allow, host by host, in a range that they know.
Until then the loop measures at the size there is.
"""

from collections.abc import Mapping
from typing import Any

from controllers.concurrency.law import LAW
from controllers.framework.guard import Measured
from controllers.framework.sensed import Counters, Sensed
from workers.control.parts.kind import Display, Lanes, LoopKind, LoopStart, Targets
from workers.control.parts.present import Present
from workers.documents.hosts import HostStatus, PoolWork
from workers.documents.loops import LoopStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.plants.plant import Plant

ROLE = "jobs"
# A process of a worker takes some 50 MB of its own. Who calls slow services may want more, and says so.
MOST_PROCESSES = 32
Document = Mapping[str, Any]


def sensor(target: Document, snapshot: Snapshot, before: Counters | None, now_seconds: float) -> Sensed:
    """{threads, interdeparture_seconds, seconds} of the host since the observation before, and where they are
    known {`epoch`, `mean_threads`, `trouble`}.

    The times are of events, completed while all processes had work (`workers.pool.departures`); `seconds` is
    how long that was. They are numbered, so that none is taken twice; of another life of the host (another
    pid) all are new. `epoch` is the newest exploration of the other hosts of the role: they have nodes and
    services in common. `mean_threads` is of all of them that are steered.
    """
    row = snapshot.hosts.get(target.get("host", ""))
    done = (row.done if row else None) or PoolWork()
    counters = {"pid": row.pid if row else None, "seq": done.seq, "full_seconds": done.full_seconds}
    loops = [loop for loop in snapshot.loops.values() if loop.law == LAW.name]
    observation = {
        "threads": row.slots if row else 0,
        **_since(before, counters, done.recent_seconds),
        **_if_known(
            epoch=_newest(loops, target),
            mean_threads=_mean_threads(loops, target, snapshot),
            trouble=(row.trouble or None) if row else None,
        ),
    }
    known = {key: value for key, value in counters.items() if value is not None}
    # Of a host that is silent for a time nothing is new when it is heard again: its samples were taken.
    kept = known if row else dict(before or {})
    return Sensed(observation, measured(target, snapshot, row, now_seconds), kept)


def _since(before: Counters | None, counters: Document, recent: list[float]) -> dict[str, Any]:
    """The samples since, as far as they are of the present size of the pool and not too many to be kept."""
    seq, full_seconds = counters["seq"] or 0, counters["full_seconds"] or 0.0
    first, seconds_before = 0.0, 0.0
    if before is not None and before.get("pid") == counters["pid"]:
        first, seconds_before = before.get("seq", 0), before.get("full_seconds", 0.0)
    fresh = min(max(0, int(seq - first)), len(recent))
    return {
        "interdeparture_seconds": recent[len(recent) - fresh :],
        "seconds": round(max(0.0, full_seconds - seconds_before), 3),
    }


def _newest(loops: list[LoopStatus], target: Document) -> int | None:
    """The newest exploration of another host that is steered, too."""
    others = [loop for loop in loops if not _is_of(loop, target) and loop.mode == Loop.Mode.AUTO]
    epochs = [loop.terms.get("epoch") for loop in others]
    return max((each for each in epochs if each is not None), default=None)


def _mean_threads(loops: list[LoopStatus], target: Document, snapshot: Snapshot) -> float | None:
    """What steered hosts have on average, this one among them; None where it is the only one."""
    steered = {loop.target.get("host", "") for loop in loops if loop.mode == Loop.Mode.AUTO}
    rows = [snapshot.hosts[host] for host in steered if host in snapshot.hosts]
    has_others = len(rows) > 1 and target.get("host") in steered
    return sum(row.slots for row in rows) / len(rows) if has_others else None


def _is_of(loop: LoopStatus, target: Document) -> bool:
    return bool(loop.target.get("host") == target.get("host"))


def _if_known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def readings(target: Document, snapshot: Snapshot) -> dict[str, Any] | None:
    """What a pool's size is judged by."""
    row = snapshot.hosts.get(target.get("host", ""))
    if row is None:
        return None
    per_second = row.done.per_second if row.done else None
    return {"throughput_per_second": per_second, "threads": row.slots, "node_state": None}


def measured(target: Document, snapshot: Snapshot, row: HostStatus | None, now_seconds: float) -> Measured:
    """The age of the host's report; and why it is invalid."""
    at_seconds, host = snapshot.at, target.get("host")
    age = None if at_seconds is None else abs(now_seconds - at_seconds)
    if row is None or row.age_seconds is None or age is None:
        return Measured(None, f"worker host {host} does not report")
    if not row.resizable:
        return Measured(age, f"the pool of {host} has no processes to add or remove")
    return Measured(age + row.age_seconds)


def set_threads(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Ask the host for the entry's processes. It lapses unless it is kept: a loop that dies in the middle of
    an exploration leaves no pool at a size that was only to be tried."""
    plant.resize_pool(loop.target["host"], int(entry.action["threads"]))


def keep_threads(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """The loop is alive, and stands behind what it asked for."""
    plant.keep_pool(loop.target["host"])


def targets(present: Present) -> Targets:
    """Each worker host of role jobs that reports, from the size it was started with."""
    found = {
        f"{LAW.name}/{name}": _start(name, report.slots)
        for name, report in present.hosts.items()
        if report.role == ROLE
    }
    return Targets(found, "its worker host does not report")


def _start(host: str, slots: int) -> LoopStart:
    most = max(MOST_PROCESSES, slots)
    return LoopStart(
        {"host": host},
        parameters={"start": slots, "minimum": 1, "maximum": most},
        guard={"minimum": 1.0, "maximum": float(most)},
    )


KIND = LoopKind(
    law=LAW,
    sensor=sensor,
    readings=readings,
    actuator=set_threads,
    desired=lambda observation, action: {"threads": action.get("threads", observation["threads"])},
    keeper=keep_threads,
    of_mode=lambda mode: {"steered": mode == Loop.Mode.AUTO},
    targets=targets,
    interval_seconds=5,
    mode=Loop.Mode.ADVISE,
    unit_hours=lambda target, snapshot, values: 1.0,  # a process of the pool, for an hour
    # A sample is the mean of several completions (`workers.pool.departures`): fewer of them say as much.
    # Points that are known to 2 % show a step's 14 % well, and a pool is not at a size that is only tried for
    # longer.
    # A step more is tried each minute at first: what the workers call may have grown.
    parameters={"method": "explorer", "initial_samples": 16, "probe_error": 0.02, "trial_seconds": 60.0},
    # Hosts report each second, and what they report is checked each second.
    guard={"stale_seconds": 5.0},
    display=Display(
        Lanes("Completions, events/s", "Processes", "in the pool", has_reference=False),
        of_each="worker host",
        purpose="Finds how many processes of a worker host bring throughput, and runs no more.",
        formula="X(n) = λ n / (1 + σ (n - 1) + κ n (n - 1)), or a station's; least n with X(n) ≥ keep · best",
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
                    "patience",
                    "alpha",
                ),
            ),
            ("Steps of TCC", ("p", "q", "w", "r", "aim", "beta")),
            ("Curve", ("probe_error", "fit_tolerance", "verify_tolerance", "verifications", "peak_share")),
        ),
        measured="terms.throughput_per_second",
        terms=("phase", "steps", "throughput_per_second", "samples", "epoch"),
        lasting="threads",
    ),
    scenario="concurrency-live",
)
