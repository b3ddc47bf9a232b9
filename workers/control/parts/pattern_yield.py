"""How many events come for each match of a pattern, and what each event takes, measured as time goes on.

Running sums with a half-life, of the events and of what was emitted. While a pattern is shed they go on with
its control keys only: what is missing to the others would make each match seem dearer than it is. Those are
few, so they move slowly what was learnt from all. Likewise of its time: a batch costs something however
little is left of it, and a pattern that is nearly all shed would seem too dear to come back.
"""

from collections.abc import Mapping

from controllers.framework.sensed import Counters
from controllers.patterns.needs import needs_of
from controllers.patterns.selectivity import output_rate
from queues.errors import BadInput
from workers.documents.pipeline import ControlKeys, PatternStatus

HALF_LIFE_SECONDS = 60.0
# A pattern that has emitted nothing yet is taken to be about to.
PRIOR_MATCHES = 0.5
MOST_SECONDS = 10.0  # of one step: rates say no more than of their window


class PatternYield:
    """The sums of one pattern, kept among a sensor's counters."""

    def __init__(self, name: str, before: Counters | None) -> None:
        self._name = name
        prefix = f"yield/{name}/"
        kept = {key[len(prefix) :]: value for key, value in (before or {}).items() if key.startswith(prefix)}
        self._made = kept.pop("", 0.0)
        self._worked, self._seconds = kept.pop("|worked", 0.0), kept.pop("|seconds", 0.0)
        self._events = kept

    def add(self, row: PatternStatus, seconds: float) -> None:
        """What the pattern was given and made for some more seconds. row: its part of the status."""
        seconds = min(max(0.0, seconds), MOST_SECONDS)  # a clock may have been set back
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
        """Of its operator's time, for one event."""
        return self._seconds / self._worked if self._worked > 0 else 0.0

    def takes(self, rates: Mapping[str, float]) -> dict[str, float]:
        """Type → how many of its events come for each match, at these rates; nothing while none was seen.

        What is learnt is one number, matches per event of any type: what comes at a time is kept or dropped
        alike, since a type that comes more often than it did is no surplus of its pattern's.
        """
        events = sum(self._events.values())
        matches = sum(rates.values()) * (self._made + PRIOR_MATCHES) / events if events > 0 else 0.0
        return {name: rate / matches for name, rate in sorted(rates.items()) if rate > 0 and matches > 0}

    def correction(self, expression: str) -> float:
        """Emitted over what the expression's selectivity says of these events (ERRATA E24); 1 while that is
        not known, as where its symbols are conditions rather than types.
        """
        try:
            needs = needs_of(expression)
        except BadInput:
            return 1.0
        if not self._made or not set(needs.symbols) <= self._events.keys():
            return 1.0
        said = output_rate(needs, self._events)
        return min(1e3, self._made / said) if said > 0 else 1.0

    def counters(self) -> dict[str, float]:
        prefix = f"yield/{self._name}/"
        kept = {prefix + name: round(events, 3) for name, events in self._events.items() if events >= 1e-3}
        sums = {"": self._made, "|worked": self._worked, "|seconds": self._seconds}
        return {**{prefix + name: round(value, 6) for name, value in sums.items()}, **kept}
