"""What the laws of the pipeline observe, picked out of the snapshot; and what their effect is judged by."""

from collections.abc import Mapping
from typing import Any

from controllers.framework.guard import Measured
from controllers.framework.sensed import Counters, Sensed, since

# Below it response times are Spark's own, and say nothing of the replicas.
LEAST_UTILISATION = 0.05
# Of the mean: batches begin and are scheduled as it comes, so much do even like replicas differ. Shares that
# followed it would wander to the end of their range.
CHANCE_SHARE = 0.5
PIPELINE_STALE_SECONDS = 5.0


def application(target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The target's application in the snapshot, or None when it is not there."""
    found = (snapshot.get("pipeline") or {}).get("applications") or {}
    return found.get(target.get("application"))


def flow(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], before: Counters | None, now_seconds: float
) -> Sensed:
    """{measured: free bytes of the result queue, applied: events dispatched since the observation before}."""
    row = application(target, snapshot) or {}
    admitted = row.get("admitted_events")
    counters = {} if admitted is None else {"admitted_events": admitted}
    known = before is not None and "admitted_events" in before and admitted is not None
    observation = {
        "measured": (row.get("result_queue") or {}).get("free_bytes") or 0,
        "applied": since(before, {"admitted_events": admitted}, "admitted_events") if known else None,
    }
    return Sensed(observation, measured(target, snapshot, now_seconds), {**(before or {}), **counters})


def balance(
    target: Mapping[str, Any], snapshot: Mapping[str, Any], before: Counters | None, now_seconds: float
) -> Sensed:
    """{response_times_seconds, shares} of the replicas that have one. With a replica nobody has heard of, or
    too little load to tell them apart, there is nothing to decide.
    """
    rows = replicas(target, snapshot)
    times = {name: row["response_seconds"] or 0.0 for name, row in rows.items()}
    observation = {
        "response_times_seconds": times,
        "shares": {name: row["share"] for name, row in rows.items()},
    }
    return Sensed(observation, _comparable(rows, measured(target, snapshot, now_seconds)), {})


def replicas(target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> dict[str, Any]:
    found = (application(target, snapshot) or {}).get("replicas") or {}
    return {name: row for name, row in sorted(found.items()) if row["share"] > 0}


def _comparable(rows: Mapping[str, Any], of: Measured) -> Measured:
    if of.invalid:
        return of
    if of.idle:
        return of
    silent = [name for name, row in rows.items() if row["response_seconds"] is None]
    if silent:
        return Measured(of.age_seconds, idle=f"replica {silent[0]} has not worked a warm batch lately")
    busiest = max((row["utilisation"] for row in rows.values()), default=0.0)
    if busiest < LEAST_UTILISATION:
        why = f"no replica works {LEAST_UTILISATION:.0%} of the time: nothing to balance"
        return Measured(of.age_seconds, idle=why)
    times = [row["response_seconds"] for row in rows.values()]
    mean = sum(times) / len(times) if times else 0.0
    if max(times, default=0.0) - min(times, default=0.0) <= CHANCE_SHARE * mean:
        return Measured(of.age_seconds, idle="the replicas differ by no more than chance makes them")
    return of


def flow_readings(target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> dict[str, Any] | None:
    """What an admission is judged by."""
    row = application(target, snapshot)
    if row is None:
        return None
    return {"free_bytes": row["result_queue"]["free_bytes"], "node_state": None}


def balance_readings(target: Mapping[str, Any], snapshot: Mapping[str, Any]) -> dict[str, Any] | None:
    """What shares are judged by."""
    rows = replicas(target, snapshot).values()
    times = [row["response_seconds"] for row in rows if row["response_seconds"] is not None]
    spread = max(times) - min(times) if times else None
    return {"response_spread_seconds": spread, "node_state": None}


def measured(target: Mapping[str, Any], snapshot: Mapping[str, Any], now_seconds: float) -> Measured:
    """The age of what the pipeline says; and why it is unfit."""
    at_seconds, pipeline = snapshot.get("at"), snapshot.get("pipeline") or {}
    said = pipeline.get("age_seconds")
    if at_seconds is None or said is None:
        return Measured(None, "the pipeline has not reported yet")
    age = abs(now_seconds - at_seconds) + said
    row = application(target, snapshot)
    if row is None:
        return Measured(age, f"application {target.get('application')} is not running")
    if said > PIPELINE_STALE_SECONDS:
        return Measured(age, f"the pipeline has said nothing for {said:.0f} s")
    told = f"application {target['application']} is {row['state']}"
    if row["state"] == "starting":
        return Measured(age, idle=told)
    return Measured(age, None if row["state"] == "running" else told)
