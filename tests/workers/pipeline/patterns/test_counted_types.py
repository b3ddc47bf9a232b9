"""Event types are counted by name up to a bound, whatever producers invent."""

from hypothesis import given
from hypothesis import strategies as st

from workers.pipeline.patterns.shedding import MAX_TYPES, OTHERS, limit_types

COUNTS = st.dictionaries(st.text(max_size=4), st.integers(1, 1000), max_size=120)


@given(COUNTS, st.frozensets(st.text(max_size=2), max_size=10))
def test_named_types_and_the_most_frequent_are_counted_by_name_and_nothing_is_lost(types, named):
    found = limit_types(types, named)
    assert sum(found.values()) == sum(types.values())
    assert len(found) <= MAX_TYPES + len(named) + 1
    assert {each: found[each] for each in named if each in types} == {
        each: types[each] for each in named if each in types
    }
    emitted = [number for each, number in found.items() if each not in named and each != OTHERS]
    left = [number for each, number in types.items() if each not in found and each != OTHERS]
    assert not left or min(emitted) >= max(left)


def test_counts_stay_bounded_over_batch_after_batch():
    found: dict[str, int] = {}
    for batch in range(50):
        for place in range(40):
            found[f"t{batch}-{place}"] = 1
        found = limit_types(found)
    assert len(found) == MAX_TYPES + 1
    assert sum(found.values()) == 2_000
