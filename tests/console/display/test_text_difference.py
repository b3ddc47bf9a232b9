"""What differs between two texts is what a reader would mark, and nobody's texts make it slow."""

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from console.display.text_difference import MAX_LINES, compute_text_difference

TEXTS = st.lists(st.sampled_from("abc"), max_size=30).map("\n".join)


def words(before, after):
    return [line.words for line in compute_text_difference(before, after).lines]


def test_a_changed_line_stands_between_its_neighbours():
    before = "\n".join("abcdefghij")
    assert words(before, before.replace("e", "E")) == ["…", "  c", "  d", "- e", "+ E", "  f", "  g"]


def test_line_ends_are_no_difference():
    assert words("a\r\nb\r\n", "a\nb") == []


@given(TEXTS, TEXTS)
def test_each_stretch_stands_in_both_texts(before, after):
    lines = compute_text_difference(before, after).lines
    for is_gap, stretch in itertools.groupby(lines, lambda line: line.sign == "@"):
        rows = [] if is_gap else list(stretch)
        for text, sign in ((before, "-"), (after, "+")):
            assert "\n".join(row.text for row in rows if row.sign in (" ", sign)) in text
    assert bool(lines) == (before.rstrip("\n") != after.rstrip("\n"))


def test_a_small_change_of_a_long_text_is_shown():
    before = "\n".join(map(str, range(50_000)))
    assert compute_text_difference(before, before.replace("\n25000\n", "\nx\n")).count == 2


def test_two_texts_that_share_nothing_in_order_cost_little():
    for size in (MAX_LINES - 1, 100_000):
        one = "\n".join(str(at % 101) for at in range(size)) + "\nx"
        other = "\n".join(str(7 * at % 101) for at in range(1, size + 1)) + "\ny"
        began = time.thread_time()
        found = compute_text_difference(one, other)
        assert time.thread_time() - began < 2.0, "52 s before it was bounded"
        assert found.too_long == (size > MAX_LINES) and (found.lines or found.too_long)
