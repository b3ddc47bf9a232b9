"""What the concurrency law observes of a worker host; and what its effect is judged by."""

from collections.abc import Mapping
from typing import Any

from controllers.framework.guard import Measured
from controllers.framework.sensed import Counters, Sensed

ROLE = "jobs"
Document = Mapping[str, Any]


def concurrency(target: Document, snapshot: Document, before: Counters | None, now_seconds: float) -> Sensed:
    """{threads, interdeparture_seconds, seconds, steered} of the host since the observation before, and where
    they are known {epoch, trouble}.

    The times are of events, completed while all processes had work (`workers.pool.departures`); `seconds` is
    how long that was. They are numbered, so that none is taken twice; of another life of the host (another
    pid) all are new. `epoch` is the newest exploration of the other hosts of the role: they have nodes and
    services in common.
    """
    row = snapshot.get("hosts", {}).get(target.get("host")) or {}
    done = row.get("done") or {}
    counters = {"pid": row.get("pid"), "seq": done.get("seq"), "full_seconds": done.get("full_seconds")}
    loops = [loop for loop in snapshot.get("loops", {}).values() if loop["law"] == "concurrency"]
    observation = {
        "threads": row.get("slots") or 0,
        **_since(before, counters, done.get("recent_seconds") or []),
        "steered": any(_is_of(loop, target) and loop["mode"] == "auto" for loop in loops),
        **_if_known(epoch=_newest(loops, target), trouble=row.get("trouble")),
    }
    known = {key: value for key, value in counters.items() if value is not None}
    return Sensed(observation, measured(target, snapshot, row, now_seconds), known)


def _since(before: Counters | None, counters: Document, recent: list[float]) -> dict[str, Any]:
    """The samples since, as far as they are of the present size of the pool and not too many to be kept."""
    seq, full_seconds = counters["seq"] or 0, counters["full_seconds"] or 0.0
    first, seconds_before = 0, 0.0
    if before is not None and before.get("pid") == counters["pid"]:
        first, seconds_before = before.get("seq", 0), before.get("full_seconds", 0.0)
    fresh = min(max(0, int(seq - first)), len(recent))
    return {
        "interdeparture_seconds": recent[len(recent) - fresh :],
        "seconds": round(max(0.0, full_seconds - seconds_before), 3),
    }


def _newest(loops: list[Document], target: Document) -> int | None:
    """The newest exploration of another host that is steered, too."""
    others = [loop for loop in loops if not _is_of(loop, target) and loop["mode"] == "auto"]
    epochs = [(loop.get("terms") or {}).get("epoch") for loop in others]
    return max((each for each in epochs if each is not None), default=None)


def _is_of(loop: Document, target: Document) -> bool:
    return bool(loop["target"].get("host") == target.get("host"))


def _if_known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def readings(target: Document, snapshot: Document) -> dict[str, Any] | None:
    """What a pool's size is judged by."""
    row = snapshot.get("hosts", {}).get(target.get("host"))
    if row is None:
        return None
    return {"throughput_per_second": (row.get("done") or {}).get("per_second"), "node_state": None}


def measured(target: Document, snapshot: Document, row: Document, now_seconds: float) -> Measured:
    """The age of the host's report; and why it is unfit."""
    at_seconds, host = snapshot.get("at"), target.get("host")
    age = None if at_seconds is None else abs(now_seconds - at_seconds)
    if not row or row.get("age_seconds") is None or age is None:
        return Measured(None, f"worker host {host} does not report")
    if not row.get("resizable"):
        return Measured(age, f"the pool of {host} has no processes to add or remove")
    return Measured(age + row["age_seconds"])
