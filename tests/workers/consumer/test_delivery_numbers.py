"""The rows of a block as text: the ids of events that have none of their own."""

from hypothesis import given
from hypothesis import strategies as st

from workers.consumer.handlers import delivery


@given(start=st.integers(0, 5_000), events=st.integers(1, 3_000))
def test_rows_are_numbered_in_the_whole_block(start, events):
    numbers = delivery._row_numbers(start, start + events).to_pylist()
    assert numbers == [str(row) for row in range(start, start + events)]


def test_blocks_of_every_size_leave_a_few_arrays_in_memory():
    for events in range(1, 3_000, 7):
        delivery._row_numbers(0, events)
    assert delivery._rows_as_text.cache_info().currsize <= 16
