"""Observations of an application of the pipeline, shared by the kinds that control one.

They are its part of the snapshot and the quality of that part.
"""

from collections.abc import Mapping
from typing import Any

from controllers.framework.guard import ObservationQuality
from queues.events.block import BLOCK_EVENTS
from workers.control.parts.kind import LoopStart, PlantInventory, Targets
from workers.documents.pipeline import ApplicationStatus
from workers.documents.snapshot import Snapshot

PIPELINE_STALE_SECONDS = 5.0
# An idle application's result queue has at least this many times as much free space as used space.
MIN_ROOM = 10


def find_application(target: Mapping[str, Any], snapshot: Snapshot) -> ApplicationStatus | None:
    """Return the target's application in the snapshot, or None when it is missing."""
    return snapshot.pipeline.applications.get(target.get("application", ""))


def check_measurement(target: Mapping[str, Any], snapshot: Snapshot, now_seconds: float) -> ObservationQuality:
    """Return the age of the pipeline's status, and why it is invalid."""
    at_seconds, said = snapshot.at, snapshot.pipeline.age_seconds
    if at_seconds is None or said is None:
        return ObservationQuality(None, "the pipeline has not reported yet")
    age = abs(now_seconds - at_seconds) + said
    row = find_application(target, snapshot)
    if row is None:
        return ObservationQuality(age, f"application {target.get('application')} is not running")
    if said > PIPELINE_STALE_SECONDS:
        return ObservationQuality(age, f"the pipeline has not reported for {said:.0f} s")
    told = f"application {target['application']} is {row.state}"
    if row.state in ("starting", "stopped"):
        return ObservationQuality(age, idle=told)
    return ObservationQuality(age, None if row.state == "running" else told)


def is_idle(target: Mapping[str, Any], snapshot: Snapshot) -> bool:
    """Return whether arrivals and backlog are too small for any limit to matter. One block is always admitted."""
    row = find_application(target, snapshot)
    if row is None or row.state != "running" or row.in_per_second is None or row.waiting_events is None:
        return False
    room = row.result_queue
    has_room = room.free_bytes is not None and room.used_bytes * MIN_ROOM <= room.free_bytes
    return has_room and max(row.in_per_second, row.waiting_events) <= BLOCK_EVENTS / 2


def list_application_targets(law: str, present: PlantInventory) -> Targets:
    """List a target for each running application."""
    starts = {f"{law}/{name}": LoopStart({"application": name}) for name in present.applications}
    return Targets(starts, "the application is not running")
