"""The effect of other values: the last minutes of a loop, decided again with them.

Laws without a model allow nothing better: the recorded observations don't respond to the changed actions. The sentence
says so.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from common.errors import BadInput
from workers.control import what_if
from workers.control.kinds.registry import find_display
from workers.models import Loop

MINUTES = 15
BUDGET_SECONDS = 2.0
OPEN_LOOP = "The plant's response can't be predicted: this law has no plant model."


@dataclass(frozen=True)
class EffectRow:
    """A figure of the decisions: as made, and as they would have been."""

    name: str
    did: float
    would: float


@dataclass(frozen=True, kw_only=True)
class ShownEffect:
    """An effect as a sentence and as figures; grave: the change will be rejected."""

    sentence: str
    grave: bool
    rows: list[EffectRow]


def build_effect(loop: Loop, changed: Mapping[str, Any], now: datetime, refusal: str = "") -> ShownEffect:
    """Build the effect of changed values.

    changed: parameters and `guard.NAME` that differ from those in force; refusal: why there are none.
    """
    if refusal:
        return ShownEffect(sentence=f"No prediction: {refusal}", grave=True, rows=[])
    if not changed:
        sentence = f"Change a value to replay the decisions of the last {MINUTES} minutes with it."
        return ShownEffect(sentence=sentence, grave=False, rows=[])
    since = now - timedelta(minutes=MINUTES)
    try:
        rerun = what_if.rerun(loop, changed, since, now, time.monotonic, BUDGET_SECONDS)
    except BadInput as error:
        return ShownEffect(sentence=f"The change will be rejected: {error.message}", grave=True, rows=[])
    return ShownEffect(sentence=_describe_effect(rerun), grave=False, rows=_build_rows(loop, rerun))


def _describe_effect(found: what_if.Rerun) -> str:
    if not found.steps:
        return f"No prediction: no decisions in the last {MINUTES} minutes."
    differing, count = len(found.differing), len(found.steps)
    if not differing:
        return f"None of the last {count:,} decisions would differ. {OPEN_LOOP}"
    return f"{differing:,} of the last {count:,} decisions would differ. {OPEN_LOOP}"


def _build_rows(loop: Loop, found: what_if.Rerun) -> list[EffectRow]:
    if not found.steps:
        return []
    done = find_display(loop.law, loop.target).lanes.done
    return [
        EffectRow("Actions", found.did.actions, found.would.actions),
        EffectRow(f"Total {done}", found.did.total, found.would.total),
        EffectRow("Actuator movement", found.did.movement, found.would.movement),
    ]
