"""The controls of a running application: key `weir:pipeline:controls:{app}` on the control server, JSON.

The controls are frozen into every dispatch and into the offsets of both tiers, which are checkpointed. A batch that is
replayed after a crash therefore uses the controls that it was planned with.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import redis

from common import checks
from common.errors import BadInput
from common.stored_document import convert, convert_to_plain, replace_fields
from queues import keys
from queues.lua.script import load_script
from workers.documents.controls import ControlValues, CriterionHold
from workers.pipeline.patterns.shedding import UNITS, Shedder, interpolate_shares

# Maximum share of the result queue that can be reserved.
MAX_RESERVED = 0.9


class Controls(ControlValues, frozen=True, kw_only=True):
    """The control values of an application, and the values derived from them. They are validated when they are read."""

    @property
    def lateness_us(self) -> int:
        return round(self.lateness_seconds * 1_000_000)

    @property
    def ahead_us(self) -> int:
        return round(self.ahead_seconds * 1_000_000)

    def get_admitted_per_second(self, now_seconds: float) -> float | None:
        """Return the admission limit that is in force now, or None."""
        return self.admit_events_per_second if self._is_admission_active(now_seconds) else None

    def get_reserved_bytes(self, now_seconds: float) -> float:
        """Return the bytes of the result queue to keep free now.

        The value is capped at a share of the result queue, in case the queue was made smaller than the loop knows.
        """
        most = MAX_RESERVED * self.result_bytes
        return min(self.reserve_bytes, most) if self._is_admission_active(now_seconds) else 0.0

    def _is_admission_active(self, now_seconds: float) -> bool:
        return self.admit_until_seconds is None or now_seconds < self.admit_until_seconds

    def list_held_criteria(self, now_seconds: float) -> dict[str, CriterionHold]:
        return {
            name: held
            for name, held in self.held_criteria.items()
            if held.until_seconds is None or now_seconds < held.until_seconds
        }

    def freeze(self, now_seconds: float) -> "Controls":
        """Return the controls as a dispatch freezes them now.

        Overridden criteria replace the others, and an expired shedding table is left out.
        """
        held = {name: criterion.value for name, criterion in self.list_held_criteria(now_seconds).items()}
        has_expired = self.shed_until_seconds is not None and now_seconds >= self.shed_until_seconds
        expired: dict[str, object] = {"shed": {}, "shed_rows": None} if has_expired else {}
        return replace_fields(self, criteria={**self.criteria, **held}, **expired)

    def limit_batch(self, rows: float) -> "Controls":
        """Return the controls for a batch with this many due rows: with too many, it sheds more.

        The time of a batch therefore stays limited between two decisions of the shedding loop.
        """
        if self.shed_rows is None or rows <= self.shed_rows:
            return self
        excess = rows / self.shed_rows if self.shed_rows else math.inf
        return replace_fields(self, shed=interpolate_shares(self.shed, self.shed_reduced, excess))

    @property
    def shedder(self) -> Shedder:
        return Shedder(self.shed, self.spared_keys_share, self.shed_by, self.shed_events_of)

    def count_tasks(self, operator: str) -> int:
        return self.tasks.get(operator, self.parallelism)

    def compute_shares(self, replicas: tuple[str, ...]) -> dict[str, float]:
        """Return the share of each replica. The sum is 1; the shares are equal if no usable share is set."""
        given = {name: max(0.0, self.shares.get(name, 1.0 / len(replicas))) for name in replicas}
        whole = sum(given.values())
        if whole <= 0:
            return dict.fromkeys(replicas, 1.0 / len(replicas))
        return {name: share / whole for name, share in given.items()}

    def to_document(self) -> dict[str, Any]:
        return convert_to_plain(self)

    def apply_changes(self, document: object) -> "Controls":
        """Return the controls with the values of a JSON object applied.

        Raises `BadInput` that names the field; nothing is changed in that case.
        """
        if not isinstance(document, dict):
            raise BadInput("controls", "must be a JSON object")
        checks.refuse_unknown(document, _CHECKS, "controls", message="is unknown; the controls are {known}")
        for name, value in document.items():
            _CHECKS[name].validate(value, f"controls.{name}")
        return convert(Controls, {**convert_to_plain(self), **document}, "controls")

    @classmethod
    def read(cls, text: str | bytes | None, default: "Controls") -> "Controls":
        """Return the stored controls applied over the defaults, or the defaults if none are stored."""
        if not text:
            return default
        try:
            document = json.loads(text)
        except ValueError as error:
            raise BadInput("controls", f"must be a JSON object ({error})") from None
        return default.apply_changes(document)


_SHARE = checks.accept_number(0, 1)
_SECONDS = checks.accept_number(0, 86_400, "a number of seconds")
_CRITERION = checks.accept_number(-1e300, 1e300)
_EVENTS_PER_SECOND = checks.accept_number(0, 1e9)
_UNTIL = checks.allow_null(checks.accept_number(0, 1e12))
_CHECKS: dict[str, checks.Check] = {
    "admit_events_per_second": checks.allow_null(_EVENTS_PER_SECOND),
    "reserve_bytes": checks.accept_number(0, 2**40),
    "admit_until_seconds": _UNTIL,
    "admit_events_per_batch": checks.accept_whole_number(0, 100_000_000),
    "combine_events_per_batch": checks.accept_whole_number(1, 100_000_000),
    "shares": checks.accept_mapping(_SHARE),
    "parallelism": checks.accept_whole_number(1, 1_024),
    "tasks": checks.accept_mapping(checks.accept_whole_number(1, 64)),
    "result_bytes": checks.accept_whole_number(2**20, 2**40),
    "lateness_seconds": _SECONDS,
    "latency_seconds": checks.allow_null(_SECONDS),
    "ahead_seconds": _SECONDS,
    "hold_seconds": _SECONDS,
    "criteria": checks.accept_mapping(_CRITERION),
    "held_criteria": checks.accept_mapping(
        checks.record(value=_CRITERION, until_seconds=_UNTIL, owner=checks.accept_text(), reason=checks.accept_text())
    ),
    "shed": checks.accept_mapping(checks.accept_mapping(_SHARE)),
    "shed_rows": checks.allow_null(checks.accept_number(0, 1e12)),
    "shed_reduced": checks.accept_mapping(checks.accept_mapping(_SHARE)),
    "shed_until_seconds": _UNTIL,
    "shed_by": checks.accept_choice(UNITS, " or ".join(UNITS)),
    "shed_events_of": checks.accept_mapping(checks.FLAG),
    "spared_keys_share": _SHARE,
    "revision": checks.accept_whole_number(0, 2**62),
}


def steer(control: redis.Redis, application: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Change these control values of the application and return all that are set.

    Applying the same values again changes nothing. Raises `BadInput` that names the control.
    """
    return _change_orders(control, application, lambda before: {**before, **changes})


def steer_named(
    control: redis.Redis, application: str, name: str, values: Mapping[str, Any], declared: Mapping[str, Any]
) -> dict[str, Any]:
    """Change values of a control that maps names to values (tasks, criteria); None removes a value.

    The other values stay as they are set, or as `declared`, even if others change them concurrently.
    """

    def change(before: dict[str, Any]) -> dict[str, Any]:
        known = {**before.get(name, declared), **values}
        return {**before, name: {key: value for key, value in known.items() if value is not None}}

    return _change_orders(control, application, change)


def _change_orders(
    control: redis.Redis, application: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    replace = control.register_script(load_script("pipeline/replace_controls"))
    key = keys.PIPELINE_CONTROLS.build(application)
    while True:
        stored = control.get(key) or b""
        before = json.loads(stored) if stored else {}
        wanted = change(before)
        if wanted == before:
            return before
        wanted["revision"] = before.get("revision", 0) + 1
        Controls().apply_changes(wanted)
        if replace(keys=[key], args=[stored, json.dumps(wanted)]):
            return wanted
