"""What may be steered of the pipeline while it runs: key `weir:pipeline:controls` on the control server,
JSON.

They are frozen into every offset, and offsets are checkpointed: a batch that is replayed after a crash uses
the controls it was planned with.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from queues.errors import BadInput

KEY = "weir:pipeline:controls"


@dataclass(frozen=True)
class Controls:
    """admit_events_per_batch: most events one batch takes (0 admits none). parallelism: most tasks at once.
    lateness_seconds: how far behind the newest
    event an event may still come. hold_seconds: how long an unreachable node holds the watermark back.
    revision: counts changes.
    """

    admit_events_per_batch: int = 200_000
    parallelism: int = 2
    lateness_seconds: float = 5.0
    hold_seconds: float = 15.0
    revision: int = 0

    @property
    def lateness_us(self) -> int:
        return round(self.lateness_seconds * 1_000_000)

    def to_document(self) -> dict[str, Any]:
        return asdict(self)

    def changed(self, document: Any) -> "Controls":
        """With the values of a JSON object in place of its own. Raises BadInput naming the field; nothing is
        changed then.
        """
        if not isinstance(document, dict):
            raise BadInput("controls", "takes a JSON object")
        for name, value in document.items():
            if name not in _CHECKS:
                known = ", ".join(field.name for field in fields(self))
                raise BadInput(f"controls.{name}", f"is not known; the controls are {known}")
            takes, accepts = _CHECKS[name]
            if not accepts(value):
                raise BadInput(f"controls.{name}", f"takes {takes}, not {value!r}")
        return replace(self, **document)

    @classmethod
    def read(cls, text: str | bytes | None, default: "Controls") -> "Controls":
        """The stored controls over the defaults; the defaults when there are none."""
        if not text:
            return default
        try:
            document = json.loads(text)
        except ValueError as error:
            raise BadInput("controls", f"is not JSON ({error})") from None
        return default.changed(document)


def _whole(least: int, most: int) -> tuple[str, Callable[[Any], bool]]:
    return (
        f"a whole number from {least} to {most}",
        lambda value: type(value) is int and least <= value <= most,
    )


def _seconds(most: float) -> tuple[str, Callable[[Any], bool]]:
    def accepts(value: Any) -> bool:
        return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= most

    return f"seconds from 0 to {most:g}", accepts


_CHECKS = {
    "admit_events_per_batch": _whole(0, 100_000_000),
    "parallelism": _whole(1, 1_024),
    "lateness_seconds": _seconds(86_400),
    "hold_seconds": _seconds(86_400),
    "revision": _whole(0, 2**62),
}
