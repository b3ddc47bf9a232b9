"""What events are made of, by a sample."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from queues.events.block import (
    MAX_EVENTS,
    MAX_VALUE_LENGTH,
    MAX_VALUES,
    NONE,
    compute_composition,
    from_columns,
    from_events,
)

CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])  # an event's text has no NUL
keys = st.lists(st.one_of(st.none(), st.text(CHARACTERS, max_size=3)), min_size=1, max_size=60)


@given(keys)
def test_it_counts_the_most_frequent_values(given_keys):
    found = compute_composition(from_events([{"type": "a", "key": key} for key in given_keys], 1))
    assert found["events"] == len(given_keys) and found["type"] == {"a": len(given_keys)}
    counts = {key: given_keys.count(key) for key in set(given_keys)}
    most = sorted(counts.values(), reverse=True)[:MAX_VALUES]
    assert sorted(found["key"].values(), reverse=True) == most
    assert all(counts[None if key == NONE else key] == count for key, count in found["key"].items())


def test_of_many_events_a_few_are_taken_evenly_though_they_are_sorted():
    count = 10 * MAX_EVENTS
    table = pa.table({"type": ["a"] * count, "key": ["first"] * (count // 2) + ["last"] * (count // 2)})
    found = compute_composition(from_columns(table, 1))
    assert found["events"] == MAX_EVENTS
    assert found["key"] == {"first": MAX_EVENTS // 2, "last": MAX_EVENTS // 2}


def test_a_long_value_is_cut():
    found = compute_composition(from_events([{"type": "a", "key": "k" * 500}], 1))
    assert found["key"] == {"k" * MAX_VALUE_LENGTH: 1}
