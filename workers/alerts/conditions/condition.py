"""The conditions that a rule can watch: a condition reads evidence and gives a reading of each subject.

A condition is one function. Its decorator `register_condition` declares all that is known of it: what it measures, the
rule that a plant starts with, what its alerts mean, and what to do first.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from workers.alerts.conditions.evidence import Evidence
from workers.control.kinds.registry import find_display
from workers.documents import parts

# What a series may be named by.
SERIES_LABELS = ("queue", "node", "loop", "plant", "group", "sensor")
PLANT_START_SECONDS = 120.0  # from the first observation on


@dataclass(frozen=True)
class Reading:
    """A reading of one subject.

    It has the labels of the subject, a value (None: unknown), a sentence about it, and what may explain it: {"nodes":
    names, "kind": a queue's consumers, "cause": why a loop has no valid measurement, "queues": the queues of a
    producer}.
    """

    labels: Mapping[str, str]
    value: float | None
    sentence: str
    touches: Mapping[str, Any] = field(default_factory=dict)


Read = Callable[[Evidence, float], Iterator[Reading]]  # the evidence, and the window (s)


@dataclass(frozen=True)
class ShippedRule:
    """A rule that a plant starts with. It notifies all open consoles, unless it is a notice."""

    name: str
    title: str
    threshold: float
    clear_threshold: float
    for_seconds: float = 0.0
    keep_seconds: float = 30.0
    window_seconds: float = 600.0
    severity: str = "warning"
    matchers: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition that alert rules can watch.

    - `label`: the label that names its subjects ("" for the whole plant).
    - `direction`: the side of the threshold on which it fires.
    - `source`: what it reads. Readings from the snapshot are unknown while no observer runs.
    - `series`: the metrics that it reads, with the subject in braces. They are charted, and a preview is computed from
      them if `has_preview`. `scale`: the value is its series times this factor; None: it is computed from more.
    - `counts`: whether it counts over a window.
    - `waits`: whether it is unknown while a part that its subject depends on is starting; `needs`: such parts in
      addition to those that follow from the subject's labels.
    - `elapses`: whether its value is how long its subject has been silent (s); it started a threshold before the
      condition was true.
    - `stopped_by`: what a person stops on purpose that explains its alerts (`workers.alerts.lifecycle.inhibition`).
    - `guards_integrity`: whether it watches that Weir itself was not tampered with. Only administrators change its
      rules, and acknowledge, snooze, or silence its alerts.
    - `rule`: the rule that a plant starts with. A condition whose threshold only people know has none.
    - `impact`: what its alerts mean; "" if that is computed from the subject. `first_step`: what to do first.
    """

    name: str
    help: str
    read: Read
    unit: str = ""
    label: str = ""
    direction: Literal["above", "below"] = "above"
    source: Literal["snapshot", "ledger", "records"] = "snapshot"
    series: tuple[str, ...] = ()
    scale: float | None = 1.0
    has_preview: bool = True
    counts: bool = False
    waits: bool = False
    needs: tuple[str, ...] = ()
    elapses: bool = False
    stopped_by: Literal["", "consumption pause", "intake pause", "host drain", "node drain", "loop hold"] = ""
    guards_integrity: bool = False
    maximum: float = 1e9
    rule: ShippedRule | None = None
    impact: str = ""
    first_step: str = ""

    @property
    def above(self) -> bool:
        return self.direction == "above"

    def list_series(self, labels: Mapping[str, str]) -> list[str]:
        """Return the names of the series of one subject."""
        unknown = [f"{{{label}}}" for label in SERIES_LABELS if label not in labels]
        return [name.format(**labels) for name in self.series if not any(label in name for label in unknown)]

    def excuse_start(self, reading: Reading, evidence: Evidence) -> Reading:
        """Return the reading, without its value while that only shows that something starts.

        A part may lack something while it starts, for as long as the part is given (`workers.documents.parts`).
        Conditions whose records outlast a stop of the whole plant (when a loop last ticked, when the observer
        published) wait while the plant itself starts.
        """
        if not self.waits:
            return reading
        needed = [*self.needs, *(parts.format_node_part(name) for name in reading.touches.get("nodes", ()))]
        if "node" in reading.labels:
            needed.append(parts.format_node_part(reading.labels["node"]))
        if (consumers := parts.CONSUMERS.get(str(reading.touches.get("kind")))) is not None:
            needed.append(consumers)
        for label, part in (
            ("loop", parts.CONTROL),
            ("pipeline", parts.CONSUMERS["pipeline"]),
            ("host", parts.CONSUMERS["jobs"]),
        ):
            if label in reading.labels:
                needed.append(part)
        is_new = self.source == "records" and evidence.started_seconds < PLANT_START_SECONDS
        starts = is_new or parts.find_settling(evidence.plant.parts, needed) is not None
        return replace(reading, value=None) if starts else reading


# All conditions by name; `workers.alerts.conditions.catalog` imports the modules that define them.
CONDITIONS: dict[str, Condition] = {}


def register_condition(help: str, *, name: str = "", **declared: Any) -> Callable[[Read], Read]:
    """Make a condition of the function that reads it, with the function's name unless another is given."""

    def register(read: Read) -> Read:
        condition = Condition(name=name or read.__name__, help=help, read=read, **declared)
        CONDITIONS[condition.name] = condition
        return read

    return register


def describe_loop(name: str) -> str:
    """Return law/target as `law of target`: a container as its queue on its node, a plant by its name."""
    law, *target = name.replace("plant:", "plant ").split("/")
    display = find_display(law)
    what = display.title or law.replace("_", " ")
    return f"{what} of {display.joint.join(target)}" if target else what
