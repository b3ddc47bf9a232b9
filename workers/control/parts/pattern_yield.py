"""Arrivals per match, surplus, and time per event of a pattern, measured over time.

A pattern may need more events than its matches contain, because an event serves only its own key. The surplus is
therefore measured within the keys (`matching.surplus`). Only if keys have many matches in a window, any event that the
expression does not need is surplus, and single events can be dropped.

The measures are running sums with a half-life, of arrivals and emitted events. While a pattern is shed, the sums
continue with its control keys only: the events missing from other keys would make each match seem more expensive than
it is. Control keys are few, so they change slowly what was learned from all keys. The same applies to time: a batch has
a fixed cost, so a pattern that is nearly completely shed would seem too expensive to restore.
"""

from collections.abc import Mapping
from math import prod

from common.errors import BadInput
from controllers.framework.sensed import Counters
from controllers.patterns.selectivity import compute_output_rate, needs_of
from workers.documents.pipeline import KEPT_SHARES, ControlKeys, PatternStatus

HALF_LIFE_SECONDS = 60.0
# A pattern that has emitted nothing yet is taken to have its first match next.
PRIOR_MATCHES = 0.5
# Until this many matches have been sampled, most events don't count as surplus.
PRIOR_SAMPLED_MATCHES = 4.0
CROWD = 5.0  # matches of a key in a window
MAX_SECONDS = 10.0  # maximum length of a step: rates only describe their window


class PatternYield:
    """The sums of one pattern, stored among a sensor's counters."""

    def __init__(self, name: str, before: Counters | None) -> None:
        self._name = name
        prefix = f"yield/{name}/"
        kept = {key[len(prefix) :]: value for key, value in (before or {}).items() if key.startswith(prefix)}
        self._made = kept.pop("", 0.0)
        self._worked, self._seconds = kept.pop("|worked", 0.0), kept.pop("|seconds", 0.0)
        self._sampled, self._crowd = kept.pop("|sampled", 0.0), kept.pop("|crowd", 0.0)
        self._survivors = {key: value for key, value in kept.items() if key.startswith("|kept/")}
        self._events = {key: value for key, value in kept.items() if key not in self._survivors}

    def add(self, row: PatternStatus, seconds: float) -> None:
        """Add the pattern's input and output of some more seconds. row: its part of the status."""
        seconds = min(max(0.0, seconds), MAX_SECONDS)  # a clock may have been set back
        fade = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        given = sum(row.types.values()) * seconds
        self._worked = self._worked * fade + given
        self._seconds = self._seconds * fade + given * (row.seconds or 0.0)
        sheds_keys = any(row.shed_per_second.values()) and not self.is_crowded
        seen: PatternStatus | ControlKeys = row.spared if sheds_keys else row
        self._made = self._made * fade + seen.out_per_second * seconds
        for name in {*self._events, *seen.types}:
            self._events[name] = self._events.get(name, 0.0) * fade + seen.types.get(name, 0.0) * seconds
        sampled = row.surplus.matches_per_second
        self._sampled = self._sampled * fade + sampled * seconds
        self._crowd = self._crowd * fade + row.surplus.matches_per_window * sampled * seconds
        survivors = {
            _build_survivor_key(share, name): kept
            for name, counts in row.surplus.kept_per_second.items()
            for share, kept in zip(KEPT_SHARES, counts, strict=True)
        }
        for key in {*self._survivors, *survivors}:
            # If no sampled match had a type in its window, dropping the type loses no sampled match.
            self._survivors[key] = self._survivors.get(key, 0.0) * fade + survivors.get(key, sampled) * seconds

    @property
    def is_crowded(self) -> bool:
        """Return whether the keys have so many matches in a window that any event can serve several."""
        return self._crowd >= CROWD * self._sampled > 0

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

    def list_reduced(self, rates: Mapping[str, float]) -> list[tuple[dict[str, float], float]]:
        """Return alternatives that keep fewer events, each with more matches per event than the previous one.

        An alternative has the kept share of each type, and the share of the matches that remain. It keeps at least one
        type completely, because dropping whole keys is better than dropping a part of all events.
        """
        kept, ways = {name: 1.0 for name, rate in rates.items() if rate > 0}, list[tuple[dict[str, float], float]]()
        best = self._compute_yield(kept, rates)
        while True:
            tries = [
                {**kept, name: share}
                for name in kept
                for share in KEPT_SHARES
                if share == kept[name] / 2 and any(kept[other] == 1.0 for other in kept if other != name)
            ]
            kept = max(tries, key=lambda each: self._compute_yield(each, rates), default=kept)
            if self._compute_yield(kept, rates) <= best:
                return ways
            best = self._compute_yield(kept, rates)
            ways.append((kept, self._compute_survival(kept)))

    def _compute_yield(self, kept: Mapping[str, float], rates: Mapping[str, float]) -> float:
        """Return the share of the matches that remain, per kept event."""
        events = sum(share * rates[name] for name, share in kept.items())
        return self._compute_survival(kept) / events if events > 0 else 0.0

    def _compute_survival(self, kept: Mapping[str, float]) -> float:
        whole = self._sampled + PRIOR_SAMPLED_MATCHES
        return prod(
            (self._survivors.get(_build_survivor_key(share, name), 0.0) + PRIOR_SAMPLED_MATCHES * share) / whole
            for name, share in kept.items()
            if share < 1
        )

    def knows_needs(self, expression: str) -> bool:
        """Return whether the events of each symbol are counted: each symbol must be the name of a type."""
        try:
            return set(needs_of(expression).symbols) <= self._events.keys()
        except BadInput:
            return False

    def compute_correction(self, expression: str) -> float:
        """Return emitted matches divided by the expression's selectivity (ERRATA E24); 1 while that is unknown."""
        if not self._made or not self.knows_needs(expression):
            return 1.0
        needs = needs_of(expression)
        said = compute_output_rate(needs, self._events)
        return min(1e3, self._made / said) if said > 0 else 1.0

    def get_counters(self) -> dict[str, float]:
        prefix = f"yield/{self._name}/"
        kept = {prefix + name: round(events, 3) for name, events in self._events.items() if events >= 1e-3}
        sums = {"": self._made, "|worked": self._worked, "|seconds": self._seconds, "|sampled": self._sampled}
        sums["|crowd"] = self._crowd
        return {**{prefix + name: round(value, 6) for name, value in {**sums, **self._survivors}.items()}, **kept}


def _build_survivor_key(share: float, event_type: str) -> str:
    return f"|kept/{share}/{event_type}"
