"""Matchers that a process keeps. It continues with a matcher only if the stored states are those that it wrote."""

from random import Random

import pyarrow as pa
import pytest

from tests.workers.pipeline.matching.patterns import pattern_of, rows_of
from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.matching.retained import concatenate
from workers.pipeline.patterns.graph import KEY_GROUPS
from workers.pipeline.tiers.matcher_cache import MAX_MATCHERS, KeptMatcher, MatcherCache

PATTERN, KEYS = pattern_of("SEQ(A; B)"), "abcdefghijkl"
GROUPS = range(KEY_GROUPS)
PLACE = ("shop", "pairs", tuple(GROUPS), PATTERN.signature, "")


def keep_one(cache: MatcherCache) -> tuple[KeptMatcher, dict[int, bytes]]:
    kept = cache.resume(PLACE, PATTERN, {}, GROUPS)
    kept.matcher.take(rows_of([(0, "A", 0.0, "x"), (1, "A", 0.0, "y")]))
    states = kept.save(GROUPS)
    cache.keep(PLACE, kept)
    return kept, states


def test_a_matcher_continues_if_the_stored_state_is_the_one_that_it_wrote():
    cache = MatcherCache()
    kept, states = keep_one(cache)
    kept.matcher.partnerless = 3
    assert cache.resume(PLACE, PATTERN, dict(states), GROUPS) is kept and kept.matcher.partnerless == 0
    assert cache.resume(PLACE, PATTERN, states, GROUPS) is not kept, "a batch that fails leaves nothing behind"


@pytest.mark.parametrize("other", ["later", "more groups", "reset"])
def test_another_state_is_read_from_the_store(other):
    cache = MatcherCache()
    kept, states = keep_one(cache)
    later = Matcher.resume(PATTERN, states)
    later.take(rows_of([(2, "A", 0.0, "x" if other == "later" else "z")]))
    stored = {} if other == "reset" else later.save()
    resumed = cache.resume(PLACE, PATTERN, stored, GROUPS)
    assert resumed is not kept and resumed.matcher.save() == stored


def test_a_matcher_continues_with_some_of_its_groups():
    cache = MatcherCache()
    kept, states = keep_one(cache)
    x, y = (int(rows_of([(0, "A", 0.0, key)]).column("group")[0].as_py()) for key in "xy")
    assert cache.resume(PLACE, PATTERN, {x: states[x]}, {x}) is kept
    kept.matcher.take(rows_of([(2, "A", 0.0, "x")]))
    later = kept.save({x})
    cache.keep(PLACE, kept)
    assert set(later) == {x} and later[x] != states[x]
    assert cache.resume(PLACE, PATTERN, {x: later[x], y: states[y]}, {x, y}) is kept


def test_a_group_that_another_process_has_written_leaves_the_others():
    cache = MatcherCache()
    _, states = keep_one(cache)
    x, y = (int(rows_of([(0, "A", 0.0, key)]).column("group")[0].as_py()) for key in "xy")
    resumed = cache.resume(PLACE, PATTERN, {}, {x})
    assert set(resumed.matcher.save()) == set(resumed.states) == {y}
    cache.keep(PLACE, resumed)
    assert cache.resume(PLACE, PATTERN, {y: states[y]}, {y}) is resumed


def test_a_process_keeps_a_limited_number_of_matchers():
    cache, matchers = MatcherCache(), []
    for number in range(MAX_MATCHERS + 1):
        matchers.append(KeptMatcher(Matcher(PATTERN), {}))
        cache.keep(("shop", str(number), (), "", ""), matchers[-1])
    assert cache.resume(("shop", "0", (), "", ""), PATTERN, {}, GROUPS) is not matchers[0]
    assert cache.resume(("shop", "1", (), "", ""), PATTERN, {}, GROUPS) is matchers[1]


@pytest.mark.parametrize(
    "pattern",
    [
        pattern_of("SEQ(A; B)", within_us=20),
        pattern_of("SEQ(A; B; C)", within_us=30, suppression_us=10),
        pattern_of("SEQ(A; B)", {"B": "prev(type) = 'A'"}, within_us=20),
        pattern_of("SEQ(A; B)", {"B": "value > A.value"}, within_us=20),
    ],
)
def test_batches_of_changing_groups_find_what_they_find_without_kept_matchers(pattern):
    random, cache = Random(1), MatcherCache()
    stored: dict[int, bytes] = {}
    due_us: dict[int, int] = {}
    for batch in range(300):
        start_us = 5 * batch
        kinds = [(start_us + n, random.choice("ABC"), random.random(), random.choice(KEYS)) for n in range(4)]
        rows, now_us = rows_of(kinds), start_us + 4
        due = {group for group, time_us in due_us.items() if time_us <= now_us}
        groups = {*rows.column("group").to_pylist(), *due}
        states = {group: stored[group] for group in groups if group in stored}
        kept = cache.resume(PLACE, pattern, states, groups)
        fresh = Matcher.resume(pattern, states)
        assert _find(kept.matcher, rows, now_us) == _find(fresh, rows, now_us)
        saved, timers_us = kept.save(groups), kept.matcher.compute_timers()
        assert set(saved) == set(fresh.save())
        assert {group: timers_us.get(group) for group in groups} == {g: fresh.compute_timers().get(g) for g in groups}
        cache.keep(PLACE, kept)
        stored = {group: state for group, state in stored.items() if group not in groups} | saved
        due_us = {group: at_us for group, at_us in due_us.items() if group not in groups}
        due_us |= {group: at_us for group, at_us in timers_us.items() if group in groups}
        if batch % 50 == 49:
            stored, due_us = {}, {}  # a reset


def _find(matcher: Matcher, rows: pa.RecordBatch, now_us: int) -> list[tuple[list[str], bool]]:
    found = concatenate([matcher.take(rows), matcher.advance(now_us)])
    return list(zip(found.get_event_ids(), found.suppressed.tolist(), strict=True))
