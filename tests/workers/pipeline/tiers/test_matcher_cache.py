"""Matchers that a process keeps. It continues with a matcher only if the stored state is the one that it wrote."""

import pytest

from tests.workers.pipeline.matching.patterns import pattern_of, rows_of
from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.tiers.matcher_cache import MAX_MATCHERS, MatcherCache

PATTERN = pattern_of("SEQ(A; B)")
PLACE = ("shop", "pairs", 0, PATTERN.signature, "")


def keep_one(kept: MatcherCache) -> tuple[Matcher, dict[int, bytes]]:
    matcher = Matcher(PATTERN)
    matcher.take(rows_of([(0, "A", 0.0, "x")]))
    states = matcher.save()
    kept.keep(PLACE, matcher, states)
    return matcher, states


def test_a_matcher_continues_if_the_stored_state_is_the_one_that_it_wrote():
    kept = MatcherCache()
    matcher, states = keep_one(kept)
    matcher.partnerless = 3
    assert kept.resume(PLACE, PATTERN, dict(states)) is matcher and matcher.partnerless == 0
    assert kept.resume(PLACE, PATTERN, states) is not matcher, "a batch that fails leaves nothing behind"


@pytest.mark.parametrize("other", ["later", "more groups", "reset"])
def test_another_state_is_read_from_the_store(other):
    kept = MatcherCache()
    matcher, states = keep_one(kept)
    later = Matcher.resume(PATTERN, states)
    later.take(rows_of([(1, "A", 0.0, "x" if other == "later" else "y")]))
    stored = {} if other == "reset" else later.save()
    resumed = kept.resume(PLACE, PATTERN, stored)
    assert resumed is not matcher and resumed.save() == stored


def test_a_process_keeps_a_limited_number_of_matchers():
    kept, matchers = MatcherCache(), []
    for number in range(MAX_MATCHERS + 1):
        matchers.append(Matcher(PATTERN))
        kept.keep(("shop", str(number), 0, "", ""), matchers[-1], {})
    assert kept.resume(("shop", "0", 0, "", ""), PATTERN, {}) is not matchers[0]
    assert kept.resume(("shop", "1", 0, "", ""), PATTERN, {}) is matchers[1]
