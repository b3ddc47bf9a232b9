"""The differences of two texts, line by line, with limits: the texts may come from anybody."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

CONTEXT_LINES = 2
# Of either text, between the common start and end: the time to compare grows with their product.
MAX_LINES = 1_000


@dataclass(frozen=True)
class DiffLine:
    """sign: + (added), - (removed), @ (a gap before it), or a space."""

    sign: str
    text: str

    @property
    def words(self) -> str:
        return "…" if self.sign == "@" else f"{self.sign} {self.text}"


@dataclass(frozen=True)
class TextDifference:
    """The difference between two texts.

    lines: the differences, with CONTEXT_LINES around them. too_long: there would be too many to compare.
    """

    lines: Sequence[DiffLine] = ()
    too_long: bool = False

    @property
    def count(self) -> int:
        """Return the number of lines added or removed."""
        return sum(line.sign in "+-" for line in self.lines)


def compute_text_difference(before: str, after: str) -> TextDifference:
    """Return what changes from one text to the other, ignoring Windows line ends and trailing line ends."""
    was, would_be = (text.replace("\r\n", "\n").rstrip("\n").split("\n") for text in (before, after))
    head = _count_common_lines(was, would_be)
    tail = _count_common_lines(was[head:][::-1], would_be[head:][::-1])
    if max(len(was), len(would_be)) - head - tail > MAX_LINES:
        return TextDifference(too_long=True)
    first, last = max(0, head - CONTEXT_LINES), max(0, tail - CONTEXT_LINES)
    one, other = (lines[first : len(lines) - last] for lines in (was, would_be))
    diff = list(difflib.unified_diff(one, other, n=CONTEXT_LINES, lineterm=""))[2:]
    return TextDifference([DiffLine(line[0], "" if line[0] == "@" else line[1:]) for line in diff])


def _count_common_lines(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines both start with."""
    differing = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))
