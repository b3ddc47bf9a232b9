"""Arrivals per match and time per event of a pattern, measured over time.

The measures are running sums with a half-life, of arrivals and emitted events. While a pattern is shed, the sums
continue with its control keys only: the events missing from other keys would make each match seem more expensive than
it is. Control keys are few, so they change slowly what was learned from all keys. The same applies to time: a batch has
a fixed cost, so a pattern that is nearly completely shed would seem too expensive to restore.
"""

from collections.abc import Mapping

from common.errors import BadInput
from controllers.framework.sensed import Counters
from controllers.patterns.selectivity import compute_output_rate, needs_of
from workers.documents.pipeline import ControlKeys, PatternStatus

HALF_LIFE_SECONDS = 60.0
# A pattern that has emitted nothing yet is taken to have its first match next.
PRIOR_MATCHES = 0.5
MAX_SECONDS = 10.0  # maximum length of a step: rates only describe their window


class PatternYield:
    """The sums of one pattern, stored among a sensor's counters."""

    def __init__(self, name: str, before: Counters | None) -> None:
        self._name = name
        prefix = f"yield/{name}/"
        kept = {key[len(prefix) :]: value for key, value in (before or {}).items() if key.startswith(prefix)}
        self._made = kept.pop("", 0.0)
        self._worked, self._seconds = kept.pop("|worked", 0.0), kept.pop("|seconds", 0.0)
        self._events = kept

    def add(self, row: PatternStatus, seconds: float) -> None:
        """Add the pattern's input and output of some more seconds. row: its part of the status."""
        seconds = min(max(0.0, seconds), MAX_SECONDS)  # a clock may have been set back
        fade = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        given = sum(row.types.values()) * seconds
        self._worked = self._worked * fade + given
        self._seconds = self._seconds * fade + given * (row.seconds or 0.0)
        seen: PatternStatus | ControlKeys = row.spared if any(row.shed_per_second.values()) else row
        self._made = self._made * fade + seen.out_per_second * seconds
        for name in {*self._events, *seen.types}:
            self._events[name] = self._events.get(name, 0.0) * fade + seen.types.get(name, 0.0) * seconds

    @property
    def seconds(self) -> float:
        """Return the operator time for one event."""
        return self._seconds / self._worked if self._worked > 0 else 0.0

    def takes(self, rates: Mapping[str, float]) -> dict[str, float]:
        """Return type → events per match at these rates; nothing while none was seen.

        One number is learned, matches per event of any type: all events of a time are kept or dropped alike, since a
        type that has become more frequent is not surplus for its pattern.
        """
        events = sum(self._events.values())
        matches = sum(rates.values()) * (self._made + PRIOR_MATCHES) / events if events > 0 else 0.0
        return {name: rate / matches for name, rate in sorted(rates.items()) if rate > 0 and matches > 0}

    def compute_correction(self, expression: str) -> float:
        """Return emitted matches divided by the expression's selectivity (ERRATA E24).

        The result is 1 while that is unknown, for example where its symbols are conditions rather than types.
        """
        try:
            needs = needs_of(expression)
        except BadInput:
            return 1.0
        if not self._made or not set(needs.symbols) <= self._events.keys():
            return 1.0
        said = compute_output_rate(needs, self._events)
        return min(1e3, self._made / said) if said > 0 else 1.0

    def get_counters(self) -> dict[str, float]:
        prefix = f"yield/{self._name}/"
        kept = {prefix + name: round(events, 3) for name, events in self._events.items() if events >= 1e-3}
        sums = {"": self._made, "|worked": self._worked, "|seconds": self._seconds}
        return {**{prefix + name: round(value, 6) for name, value in sums.items()}, **kept}
