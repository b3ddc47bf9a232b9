"""Counts each second how far the objectives were kept, and tracks what is left of their budgets.

One process counts: the observer that publishes. Each snapshot counts for the time since the one before. After a pause
of more than `GAP_SECONDS` it counts only for a second, so that time without an observer counts neither way. But events
that a counter reports as lost meanwhile are lost (`workers.objectives.definitions`).

Lost events are counted in bursts, as batches end. Losses beyond what is offered in that second count in the next ones,
up to what is offered in `CARRIED_SECONDS`; if there are none, since the process ends or the objective is changed, they
count in the running minute. A minute is written when it is over, and when the process ends. After a process was killed,
the next one continues from the running minute of its last snapshot. A minute is written whole, so writing it twice has
the effect of writing it once.
"""

import logging
from dataclasses import dataclass, field

import numpy as np
from django.db import DatabaseError

from common.errors import BadInput
from workers.documents.objectives import ObjectiveStatus, RunningMinute
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.objectives.definitions import Measure, PlantFigures, Rates, is_another, measure_of
from workers.objectives.error_budget import (
    PAIRS,
    MinuteCounts,
    compute_allowed,
    compute_left_share,
    compute_window_budget,
    pair_rate,
)
from workers.objectives.models import Objective, ObjectiveMinute

logger = logging.getLogger(__name__)
GAP_SECONDS, MINUTE_SECONDS, MINUTES_PER_DAY = 5.0, 60, 1_440
TRIM_MINUTES = 60
CARRIED_SECONDS = 600.0
REPORTED_DAYS = 9  # A report of seven days may be a day late.
MAX_SUBJECTS = 10  # those that burnt most in a minute
DIGITS = 3


@dataclass
class ObjectiveTally:
    """The counts of an objective. `burnt`: of the minutes that are not written yet, {subject: bad}."""

    objective: Objective
    measure: Measure
    counts: MinuteCounts
    unwritten: dict[int, dict[str, float]] = field(default_factory=dict)
    now: Rates = None
    carried: float = 0.0  # bad, and not counted yet
    minute: int = 0  # that was counted last

    @classmethod
    def load(cls, objective: Objective, minute: int) -> "ObjectiveTally":
        """Create a tally with the written minutes. Raises `BadInput` if its expressions can't be read."""
        window = objective.window_days * MINUTES_PER_DAY
        counts = MinuteCounts(window, minute)
        written = objective.minutes.filter(minute__gt=minute - window, minute__lte=minute)
        for minute_row in np.array(written.values_list("minute", "bad", "total"), dtype=float).reshape(-1, 3):
            counts.add(int(minute_row[0]), float(minute_row[1]), float(minute_row[2]))
        return cls(objective, measure_of(objective), counts, minute=minute)

    def resume(self, running: RunningMinute) -> None:
        """Add what another process counted of a minute that it did not write, or only in part.

        A minute in the future, as the clock was set back, would move the window and is skipped.
        """
        is_ours = running.revision == self.objective.revision and running.minute <= self.minute
        bad, total = self.counts.get(running.minute)
        is_written = (bad, total) != (0.0, 0.0) and total >= running.total
        if not is_ours or is_written:
            return
        self.counts.add(running.minute, running.bad - bad, running.total - total)
        self.unwritten[running.minute] = {}
        self.carried = running.carried

    def count(self, figures: PlantFigures, minute: int) -> None:
        """Count what the snapshot shows."""
        self.minute = minute
        self.counts.advance(minute)
        values, seconds = (figures.compute_figures(self.objective.kind, self.objective.subject), figures.seconds)
        rates = zip(values, self.measure.compute_rates(list(values.values())), strict=True)
        known = {name: rate for name, rate in rates if rate is not None}
        self.now = (sum(bad for bad, _ in known.values()), sum(total for _, total in known.values())) if known else None
        if self.now is None:
            return
        bad, total = self.carried + self.now[0] * seconds, self.now[1] * seconds
        self.carried = max(0.0, bad - total)
        if self.now[1] > 0:  # A quiet second doesn't say what may be offered soon.
            self.carried = min(self.carried, self.now[1] * CARRIED_SECONDS)
        burnt = self.unwritten.setdefault(minute, {}) if total > 0 else {}
        self.counts.add(minute, min(bad, total), total)
        for name, (lost, _) in known.items():
            if lost > 0 and name != self.objective.subject:
                burnt[name] = burnt.get(name, 0.0) + lost * seconds

    def settle(self, minute: int) -> None:
        """Count what is carried over in this minute: the next ones will not be counted."""
        if self.carried > 0:
            self.unwritten.setdefault(minute, {})
            self.counts.add(minute, self.carried, 0.0)
            self.carried = 0.0

    def build_status(self) -> ObjectiveStatus:
        """Return the status as the snapshot has it."""
        row, whole = self.objective, self.counts.sum_window()
        share = compute_left_share(whole, row.target)
        return ObjectiveStatus(
            target=row.target,
            window_days=row.window_days,
            kind=row.kind,
            subject=row.subject,
            unit=self.measure.unit,
            pays_for=row.pays_for,
            bad=round(whole.bad, DIGITS),
            total=round(whole.total, DIGITS),
            left=round(compute_allowed(whole, row.target) - whole.bad, DIGITS),
            left_share=None if share is None else round(share, 6),
            window_budget=_round_rate(compute_window_budget(whole, row.target, self.counts.minutes)),
            bad_per_second=None if self.now is None else round(self.now[0], DIGITS),
            per_second=None if self.now is None else round(self.now[1], DIGITS),
            burn={pair.name: _round_rate(pair_rate(self.counts, pair, row.target)) for pair in PAIRS},
            running=self._load_running_minute(),
        )

    def _load_running_minute(self) -> RunningMinute | None:
        if not self.unwritten and not self.carried:
            return None
        minute = max(self.unwritten, default=self.minute)
        bad, total = self.counts.get(minute)
        return RunningMinute(
            revision=self.objective.revision, minute=minute, bad=bad, total=total, carried=self.carried
        )

    def collect_rows(self, before: int) -> list[ObjectiveMinute]:
        """Return the minutes before this one that are not written."""
        rows = []
        for minute, burnt in self.unwritten.items():
            bad, total = self.counts.get(minute)
            if minute < before and (total > 0 or bad > 0):
                most = sorted(burnt.items(), key=lambda rate_row: -rate_row[1])[:MAX_SUBJECTS]
                kept = {name: round(value, DIGITS) for name, value in most}
                row = ObjectiveMinute(objective=self.objective, minute=minute, bad=bad, total=total, burnt=kept)
                rows.append(row)
        return rows

    def forget(self, before: int) -> None:
        """Forget what was written."""
        self.unwritten = {minute: burnt for minute, burnt in self.unwritten.items() if minute >= before}


def _round_rate(rate: float | None) -> float | None:
    return None if rate is None else round(rate, DIGITS)


class ObjectiveBook:
    """The counts of every objective; the one process that counts calls `step` once a second."""

    def __init__(self) -> None:
        self._tallies: dict[int, ObjectiveTally] = {}
        self._refused: dict[int, tuple[int, str]] = {}  # objective → (revision, why it can't be read)
        self._before = NOTHING_SEEN  # counted last
        self._minute: int | None = None
        self._written: int | None = None  # the minute in which the earlier ones were written
        self._fails = False

    def step(self, snapshot: Snapshot, published: Snapshot | None = None) -> dict[str, ObjectiveStatus]:
        """Count this snapshot; return name → status of the objective.

        `published`: the previous snapshot, from any process: a process that takes over continues from there.
        Raises what the database raises.
        """
        at = snapshot.at or 0.0
        if self._minute is not None and at // MINUTE_SECONDS < self._minute - 1:
            # The clock was set back, or was ahead once: what is counted now would lie behind the windows.
            self.close()
            self.reset_state()
            published = None
        before = self._before if self._before.at is not None else published or NOTHING_SEEN
        minute, passed = int(at // MINUTE_SECONDS), 1.0 if before.at is None else at - before.at
        seconds = 1.0 if passed > GAP_SECONDS else max(0.0, passed)
        objectives = list(Objective.objects.order_by("name"))
        self._follow(objectives, minute)
        if self._before.at is None:
            # Continue from the last snapshot of a killed process; one that ended has written all it knew.
            for tally in self._tallies.values():
                status = before.objectives.get(tally.objective.name)
                if status is not None and status.running is not None:
                    tally.resume(status.running)
        figures = PlantFigures(snapshot, before, seconds)
        self._before = snapshot
        for tally in self._tallies.values():
            tally.count(figures, minute)
        self._minute = minute
        return {objective.name: self._build_objective_status(objective) for objective in objectives}

    def keep(self) -> None:
        """Write the minutes that are over. Call it after publishing, which must not wait for it."""
        if self._minute is None or self._minute == self._written:
            return
        self._write(self._minute)
        if self._minute % TRIM_MINUTES == 0:
            for tally in self._tallies.values():  # Neither a window nor a weekly report reaches older minutes.
                days = max(tally.objective.window_days, REPORTED_DAYS)
                tally.objective.minutes.filter(minute__lte=self._minute - days * MINUTES_PER_DAY).delete()
        self._written = self._minute

    def reset_state(self) -> None:
        """Stop counting while another process counts. The outdated state is read again before counting resumes."""
        self._tallies, self._before, self._minute, self._written = {}, NOTHING_SEEN, None, None

    def close(self) -> None:
        """Write what was counted of the running minute, and what is carried over."""
        if self._minute is None:
            return
        for tally in self._tallies.values():
            tally.settle(self._minute)
        self._write(self._minute + 1)

    def _build_objective_status(self, objective: Objective) -> ObjectiveStatus:
        if objective.pk in self._tallies:
            return self._tallies[objective.pk].build_status()
        return ObjectiveStatus(
            target=objective.target,
            window_days=objective.window_days,
            kind=objective.kind,
            subject=objective.subject,
            pays_for=objective.pays_for,
            last_error=self._refused[objective.pk][1],
        )

    def _follow(self, objectives: list[Objective], minute: int) -> None:
        """Keep one tally for each present objective."""
        known = {objective.pk for objective in objectives}
        self._tallies = {key: tally for key, tally in self._tallies.items() if key in known}
        for objective in objectives:
            tally, refused = self._tallies.get(objective.pk), self._refused.get(objective.pk)
            if tally and tally.objective.revision == objective.revision:
                continue
            if refused and refused[0] == objective.revision:
                continue
            if tally and not is_another(tally.objective, objective):
                tally.settle(minute)
                self._write(minute + 1, [tally])
            try:
                self._tallies[objective.pk] = ObjectiveTally.load(objective, minute)
                self._refused.pop(objective.pk, None)
            except BadInput as error:
                self._tallies.pop(objective.pk, None)
                self._refused[objective.pk] = (objective.revision, str(error))

    def _write(self, before: int, tallies: list[ObjectiveTally] | None = None) -> None:
        """Write the minutes before this one; what can't be written now is written with the next minute."""
        chosen = list(self._tallies.values()) if tallies is None else tallies
        try:
            ObjectiveMinute.objects.bulk_create(
                [row for tally in chosen for row in tally.collect_rows(before)],
                update_conflicts=True,
                unique_fields=["objective", "minute"],
                update_fields=["bad", "total", "burnt"],
            )
        except DatabaseError as error:
            if not self._fails:
                logger.warning("The counts of objectives can't be written; trying again: %r", error)
            self._fails = True
            return
        self._fails = False
        for tally in chosen:
            tally.forget(before)
