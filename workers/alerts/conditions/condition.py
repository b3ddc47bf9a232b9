"""What a rule can watch: a condition reads evidence and gives a reading of each subject."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from workers.alerts.conditions.evidence import Evidence


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


# What a series may be named by.
SERIES_LABELS = ("queue", "node", "loop", "plant", "group", "sensor")
Read = Callable[[Evidence, float], Iterator[Reading]]  # the evidence, and the window (s)


@dataclass(frozen=True)
class Condition:
    """A condition that alert rules can watch.

    - `direction`: the side of the threshold on which it fires.
    - `label`: the label that names its subjects ("" for the whole plant).
    - `series`: the metrics that it reads, with the subject in braces. They are charted, and a preview is
      computed from them.
    - `source`: what it reads. Readings from the snapshot are unknown while no observer runs.
    - `counts`: whether it counts over a window.
    - `waits`: whether it is unknown while a part that its subject depends on is starting
      (`workers.alerts.conditions.starting`).
    - `elapses`: whether its value is how long its subject has been silent (s); it started a threshold before
      the condition was true.
    - `guards_integrity`: whether it watches that Weir itself was not tampered with. Only administrators
      change its rules, and acknowledge, snooze, or silence its alerts.
    - `has_rule`: whether a plant starts with a rule of it (`workers.alerts.rules.shipped`). A condition whose
      threshold only people know has none.
    """

    name: str
    help: str
    unit: str
    label: str
    read: Read
    direction: Literal["above", "below"] = "above"
    source: Literal["snapshot", "ledger", "records"] = "snapshot"
    series: tuple[str, ...] = ()
    # The value is its series times this factor; None: the value is computed from more.
    scale: float | None = 1.0
    counts: bool = False
    waits: bool = False
    elapses: bool = False
    has_rule: bool = True
    guards_integrity: bool = False
    maximum: float = 1e9

    @property
    def above(self) -> bool:
        return self.direction == "above"

    def list_series(self, labels: Mapping[str, str]) -> list[str]:
        """Return the names of the series of one subject."""
        return [name.format(**labels) for name in self.series if _name_series(name, labels)]


def _name_series(series: str, labels: Mapping[str, str]) -> bool:
    return all(f"{{{label}}}" not in series or label in labels for label in SERIES_LABELS)
