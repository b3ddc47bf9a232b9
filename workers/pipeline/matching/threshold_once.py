"""SEQ(A; B) whose only condition between events compares a number of B with a number of A, relaxed, policy once.

The open attempts of a key keep their numbers between batches (`attempt_lists`), so a batch reads only the attempts that
its events take. The numbers are not part of the stored state. A matcher that resumes computes them in its first batch.
"""

import numpy as np
import pyarrow as pa

from workers.pipeline.matching import retained
from workers.pipeline.matching.attempt_matcher import BatchKeys
from workers.pipeline.matching.cross_once import CrossOnceMatcher
from workers.pipeline.matching.open_attempts import Changes
from workers.pipeline.matching.step_conditions import StepConditions
from workers.pipeline.matching.threshold import Found, Openers, Takers, Threshold, ThresholdSearch


class ThresholdOnceMatcher(CrossOnceMatcher):
    """Matcher for sequences of two steps with a threshold.

    A batch whose numbers NumPy can't compare is matched like a batch with any other condition.
    """

    def __init__(self, conditions: StepConditions, threshold: Threshold) -> None:
        super().__init__(conditions, has_minima=True)
        self._threshold = threshold

    def take_relevant(self, rows: pa.RecordBatch, masks: np.ndarray, batch_keys: BatchKeys) -> retained.Matches:
        codes, times = batch_keys.codes, rows.column("time").to_numpy()
        order = retained.compute_stable_order(codes)
        is_opener, is_taker = ((masks & step.bit) != 0 for step in self._plan)
        openers, takers = order[is_opener[order]], np.flatnonzero(is_taker)
        numbers = self._threshold.convert_numbers(self._conditions.evaluate(self._threshold.taken, rows, openers))
        bounds = self._threshold.convert_bounds(self._conditions.evaluate(self._threshold.own, rows, takers))
        if numbers is None or bounds is None or not self._index_attempts():
            self.attempts.lists.is_indexed = False
            return super().take_relevant(rows, masks, batch_keys)
        self.add_keys(batch_keys, codes[openers])
        keys = np.flatnonzero(batch_keys.numbers >= 0)
        key_of = np.full(len(batch_keys.numbers), -1)
        key_of[keys] = np.arange(len(keys))
        can_take = ~np.isnan(bounds) & (key_of[codes[takers]] >= 0)
        takers, bounds = takers[can_take], bounds[can_take]
        is_taker = np.zeros(len(codes), bool)
        is_taker[takers] = True
        earlier, rank = (_count_earlier(codes, order, is_counted)[takers] for is_counted in (is_opener, is_taker))
        found = ThresholdSearch(
            self.attempts,
            batch_keys.numbers[keys],
            Openers(key_of[codes[openers]], times[openers], numbers, is_taker[openers]),
            Takers(key_of[codes[takers]], times[takers], bounds, earlier, rank, is_opener[takers]),
            self._within_us,
        ).run()
        first_rows = np.append(openers, -1)[found.opener]
        matches = self._build_matches(rows, found.attempt, np.stack((first_rows, takers[found.taker]), axis=1))
        self._keep_opened(rows, batch_keys, found, openers[found.opened])
        return matches

    def _build_matches(self, rows: pa.RecordBatch, attempts: np.ndarray, places: np.ndarray) -> retained.Matches:
        """Return the matches. attempts: of each match, or -1. places: int64[matches, 2], its rows, or -1."""
        is_matched = np.zeros(rows.num_rows, bool)
        is_matched[places[places >= 0]] = True
        new_places = np.where(places >= 0, np.cumsum(is_matched)[places] - 1, -1)
        return self._conditions.build_matches(
            *self.find_events(rows.filter(pa.array(is_matched)), attempts, new_places)
        )

    def _index_attempts(self) -> bool:
        """Compute the numbers of the open attempts if they are not known. Return False if they are not doubles."""
        attempts = self.attempts
        if attempts.lists.is_indexed:
            return True
        open_attempts = attempts.list_open()
        numbers = np.zeros(0)
        if len(open_attempts):
            events = attempts.take_columns(attempts.get_events(open_attempts)[:, 0], self.read_names)
            values = self._conditions.evaluate(self._threshold.taken, events, np.arange(len(open_attempts)))
            converted = self._threshold.convert_numbers(values)
            if converted is None:
                return False
            numbers = np.full(int(open_attempts[-1]) + 1, np.inf)
            numbers[open_attempts] = converted
        attempts.lists.index(numbers)
        return True

    def _keep_opened(self, rows: pa.RecordBatch, batch_keys: BatchKeys, found: Found, opened: np.ndarray) -> None:
        """Keep the attempts that stay open. opened: the rows of their first events."""
        times = rows.column("time").to_numpy()
        now_us = int(times[-1])
        self.attempts.expire(now_us)
        stays = times[opened] >= now_us - self._within_us
        opened = opened[stays]
        changes = Changes(
            found.attempt[found.attempt >= 0],
            np.full(len(opened), -1),
            batch_keys.numbers[batch_keys.codes[opened]],
            times[opened],
            np.stack((opened, np.full(len(opened), -1)), axis=1),
            found.place[stays],
        )
        self.attempts.change(rows, changes)


def _count_earlier(codes: np.ndarray, order: np.ndarray, is_counted: np.ndarray) -> np.ndarray:
    """Return, for each event, how many earlier events of its key are counted. order: of the events by key."""
    counted = is_counted[order]
    before = np.cumsum(counted) - counted
    begins = np.flatnonzero(np.diff(codes[order], prepend=-1))
    earlier = np.empty(len(order), np.int64)
    earlier[order] = before - np.repeat(before[begins], np.diff(begins, append=len(order)))
    return earlier
