"""Signs and ranges with labels, in a lane: arranged without overlaps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

LABEL_SHARE, CHARACTER_SHARE = 0.036, 0.0102  # width of a sign and of a character, on a plot 620 px wide
PHONE_STRETCH = 1.9  # on a plot narrower by this factor the same words take that much more of it
MAX_ROWS, MAX_PHONE_ROWS = 4, 6


@dataclass(frozen=True)
class Bar:
    """A mark, an override, or an alert. `begin` and `end` are shares of the window."""

    begin: float
    end: float
    kind: str
    label: str
    title: str
    at: datetime
    until: datetime | None
    url: str = ""
    state: str = ""
    row: int = 0
    phone_row: int = 0
    space: float = 1.0  # share of the plot that its label may take before it would touch the next one
    phone_space: float = 1.0

    @property
    def width(self) -> float:
        return self.end - self.begin

    @property
    def inside(self) -> bool:
        """Return whether the label fits in the bar."""
        return self.width >= self.measure_room()

    @property
    def before(self) -> bool:
        """Return whether the label is before the bar, since the plot ends after it."""
        room = self.measure_room()
        return not self.inside and self.label_begin + room > 1.0 and self.begin >= room

    @property
    def label_begin(self) -> float:
        """Return the start of the label: that of its bar, or the end of a box that is too small for it."""
        return self.end if self.kind == "override" and not self.inside else self.begin

    def measure_room(self, stretch: float = 1.0) -> float:
        """Return the width of its sign and label."""
        return stretch * (LABEL_SHARE + CHARACTER_SHARE * len(self.label))

    def compute_extent(self, stretch: float = 1.0) -> tuple[float, float]:
        """Return the range of the bar and its label."""
        if self.before:
            return self.begin - self.measure_room(stretch), self.end
        return self.begin, max(self.end, self.label_begin + self.measure_room(stretch))


def arrange_in_rows(bars: Iterable[Bar]) -> list[Bar]:
    """Return the bars in rows, for a wide screen and for a phone."""
    bars = list(bars)
    rows = _assign_rows(bars, 1.0, MAX_ROWS)
    phone_rows = _assign_rows(bars, PHONE_STRETCH, MAX_PHONE_ROWS)
    spaces, phone_spaces = (
        _compute_label_widths(bars, rows, 1.0),
        _compute_label_widths(bars, phone_rows, PHONE_STRETCH),
    )
    placed = zip(bars, rows, phone_rows, spaces, phone_spaces, strict=True)
    return [
        replace(bar, row=row, phone_row=phone_row, space=space, phone_space=phone_space)
        for bar, row, phone_row, space, phone_space in placed
    ]


def _assign_rows(bars: Sequence[Bar], stretch: float, most: int) -> list[int]:
    """Return rows without overlaps; bars that don't fit share the last."""
    ends: list[float] = []
    rows = []
    for bar in bars:
        begin, end = bar.compute_extent(stretch)
        free = next((row for row, taken in enumerate(ends) if taken <= begin), len(ends))
        row = min(free, most - 1)
        if row == len(ends):
            ends.append(end)
        ends[row] = max(ends[row], end) if free >= most else end
        rows.append(row)
    return rows


def _compute_label_widths(bars: Sequence[Bar], rows: Sequence[int], stretch: float) -> list[float]:
    """Return the maximum width of each label.

    Plots and characters differ in width, so the page truncates a label there, whatever was estimated.
    """
    spaces = [0.0] * len(bars)
    for row in set(rows):
        places = sorted((place for place in range(len(bars)) if rows[place] == row), key=lambda p: bars[p].begin)
        before: int | None = None
        for place in [*places, None]:
            edge = _compute_label_edge(bars, before, place, stretch)
            if before is not None and not bars[before].before:
                spaces[before] = max(0.0, edge - bars[before].label_begin)
            if place is not None and bars[place].before:
                spaces[place] = max(0.0, bars[place].begin - edge)
            before = place
    return spaces


def _compute_label_edge(bars: Sequence[Bar], left: int | None, right: int | None, stretch: float) -> float:
    """Return where the label of one bar must have ended, and that of the next may start."""
    if right is None:
        return 1.0
    own = bars[right].begin - (bars[right].measure_room(stretch) if bars[right].before else 0.0)
    if left is None or not bars[right].before:
        return max(0.0, own)
    # In a shared row the left bar may end after the start of the right one.
    return min(bars[right].begin, max(bars[left].end, own))


def count_rows(rows: Iterable[int]) -> int:
    """Return the number of rows of a lane: one if it is empty."""
    return max(rows, default=0) + 1
