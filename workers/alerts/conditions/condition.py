"""What a rule can watch: a condition reads evidence and gives a reading of each subject."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from workers.alerts.conditions.evidence import Evidence


@dataclass(frozen=True)
class Reading:
    """One subject: its labels, its value (None: unknown), a sentence on it, and what may explain it
    ({"nodes": names, "kind": a queue's consumers, "cause": why a loop has no valid measurement, "queues":
    those of a producer}).
    """

    labels: Mapping[str, str]
    value: float | None
    sentence: str
    touches: Mapping[str, Any] = field(default_factory=dict)


# What a series may be named by.
SERIES_LABELS = ("queue", "node", "loop", "plant", "group", "sensor")
Read = Callable[[Evidence, float], Iterator[Reading]]  # the evidence, and how far back it counts (s)


@dataclass(frozen=True)
class Condition:
    """`direction`: on which side of the threshold it fires. `label`: what its subjects are named by (""
    for the whole plant). `series`: what of the metrics it reads, with the subject in braces; these are
    charted, and a preview is computed from them. `source`: what it reads; what comes from the snapshot is
    unknown while nobody observes. `counts`: whether it counts over a window. `waits`: unknown while a part
    that its subject depends on is starting (`workers.alerts.conditions.starting`). `elapses`: its value is
    how long its subject has been silent (s), so it began a threshold before the condition was true.
    `guards_integrity`: whether it watches that Weir itself was not tampered with; then only administrators
    change its rules, acknowledge or snooze its alerts, and silence them.
    `has_rule`: whether a plant starts with a rule of it (`workers.alerts.rules.shipped`); where only people
    know how much is too much it has none.
    """

    name: str
    help: str
    unit: str
    label: str
    read: Read
    direction: Literal["above", "below"] = "above"
    source: Literal["snapshot", "ledger", "records"] = "snapshot"
    series: tuple[str, ...] = ()
    scale: float | None = 1.0  # its series times this is the value; None: the value is made of more
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
        """The names of the series of one subject."""
        return [name.format(**labels) for name in self.series if _name_series(name, labels)]


def _name_series(series: str, labels: Mapping[str, str]) -> bool:
    return all(f"{{{label}}}" not in series or label in labels for label in SERIES_LABELS)
