"""Rules of display that the server's pages and their scripts share: precision of numbers, words, and limits.

A test keeps `static/js/values/rules.js` in sync. To rewrite it:
`.venv/bin/python -m console.display.script_rules > static/js/values/rules.js`.
"""

import json
import sys
from collections.abc import Mapping
from typing import NamedTuple

from queues.nodes.node_state import BUSY, IDLE, NORMAL, OFFLINE, TOOBUSY


class NumberRule(NamedTuple):
    """The notation of a number: its digits after the point, none from the limit on. The factor converts it first."""

    digits: int
    factor: float = 1
    limit: float | None = None


NUMBER_RULES: Mapping[str, NumberRule] = {
    "integer": NumberRule(0),
    "rate": NumberRule(1, limit=100.0),
    "seconds": NumberRule(1, limit=100.0),
    "milliseconds": NumberRule(1, factor=1000.0),
    "percent": NumberRule(1, factor=100.0, limit=10.0),
    "percent1": NumberRule(1, factor=100.0),
    "share": NumberRule(2, factor=100.0),
    "mebibytes": NumberRule(1, factor=2.0**-20),
    "fraction": NumberRule(2),
}
AGE_STEPS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))  # the largest that an age reaches is its unit
STATE_WORDS: Mapping[str, str] = {IDLE: "Idle", NORMAL: "Normal", BUSY: "Busy", TOOBUSY: "Too busy", OFFLINE: "Offline"}
VERDICT_WORDS: Mapping[str, str] = {
    "checking": "Checking",
    "effective": "Effective",
    "ineffective": "No effect",
    "harmful": "Harmful",
    "no action": "No action",
}
SEVERITY_STATES: Mapping[str, str] = {"critical": TOOBUSY, "warning": BUSY, "notice": IDLE}
# A tick is late after so many intervals and the age of a snapshot's loops.
LATE_INTERVALS, GRACE_SECONDS = 2.0, 2.0

_WORDS = "Record<string, string>"
_SCRIPT_RULES: tuple[tuple[str, str, Mapping[str, object] | tuple[object, ...] | float], ...] = (
    ("NUMBER_RULES", "Record<NumberFormat, NumberRule>", {name: rule._asdict() for name, rule in NUMBER_RULES.items()}),
    ("AGE_STEPS", "[seconds: number, unit: string][]", AGE_STEPS),
    ("STATE_WORDS", _WORDS, STATE_WORDS),
    ("VERDICT_WORDS", _WORDS, VERDICT_WORDS),
    ("SEVERITY_STATES", _WORDS, SEVERITY_STATES),
    ("LATE_INTERVALS", "number", LATE_INTERVALS),
    ("GRACE_SECONDS", "number", GRACE_SECONDS),
)


def build_script_rules() -> str:
    """Return the rules as a module of the scripts."""
    head = "// Rules that pages and scripts share, written by `python -m console.display.script_rules`.\n"
    return head + "".join(
        f"\n/** @type {{{kind}}} */\nexport const {name} = {_write_value(value)};\n"
        for name, kind, value in _SCRIPT_RULES
    )


def _write_value(value: object) -> str:
    """Return JSON with a line for each entry."""
    if isinstance(value, Mapping):
        return "{\n" + "".join(f'  "{name}": {json.dumps(part)},\n' for name, part in value.items()) + "}"
    return json.dumps(value)


if __name__ == "__main__":
    sys.stdout.write(build_script_rules())
