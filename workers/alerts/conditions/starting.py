"""Readings of parts that are starting.

A part may lack something while it starts. This is no reason for an alert, so its subjects are unknown until it settles.
This is true only for conditions that say so (`Condition.waits`), only for subjects that depend on such a part, and only
for as long as that part is given (`workers.snapshot.parts`). Conditions whose records outlast a stop of the whole plant
(when a loop last ticked, when the observer published) wait while the plant itself starts.
"""

from collections.abc import Iterator
from dataclasses import replace

from workers.alerts.conditions.condition import Condition, Reading
from workers.alerts.conditions.evidence import Evidence
from workers.documents import parts

PLANT_SECONDS = 120.0  # from the first observation on


def excuse_start(condition: Condition, reading: Reading, evidence: Evidence) -> Reading:
    """Return the reading, without its value while that only shows that something starts."""
    if not condition.waits:
        return reading
    is_new = condition.source == "records" and evidence.started_seconds < PLANT_SECONDS
    if is_new or parts.find_settling(evidence.plant.parts, _list_needed_parts(condition, reading)):
        return replace(reading, value=None)
    return reading


def _list_needed_parts(condition: Condition, reading: Reading) -> Iterator[str]:
    """Return the parts that a subject depends on."""
    yield from (parts.format_node_part(name) for name in reading.touches.get("nodes", ()))
    if "node" in reading.labels:
        yield parts.format_node_part(reading.labels["node"])
    if (part := parts.CONSUMERS.get(str(reading.touches.get("kind")))) is not None:
        yield part
    if "loop" in reading.labels or condition.name in ("loops_stopped", "host_overloaded"):
        yield parts.CONTROL
    if "pipeline" in reading.labels:
        yield parts.CONSUMERS["pipeline"]
    if "host" in reading.labels or condition.name.startswith("workers_"):
        yield parts.CONSUMERS["jobs"]
