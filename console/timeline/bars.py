"""Signs and stretches with labels, in a lane: placed so that none stands over another."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

LABEL_SHARE, CHARACTER_SHARE = 0.036, 0.0102  # room of a sign and of a character, of a plot 620 px wide
PHONE_STRETCH = 1.9  # on a plot so many times narrower the same words take so much more of it
MOST_ROWS, MOST_PHONE_ROWS = 4, 6


@dataclass(frozen=True)
class Bar:
    """A mark, an override or an alert. `begin` and `end` are shares of the window."""

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
        """Whether the label fits in the bar."""
        return self.width >= self.room()

    @property
    def before(self) -> bool:
        """Whether the label stands before the bar, since the plot ends behind it."""
        room = self.room()
        return not self.inside and self.label_begin + room > 1.0 and self.begin >= room

    @property
    def label_begin(self) -> float:
        """A label begins with its bar; that of a box which is too small for it stands behind the box."""
        return self.end if self.kind == "override" and not self.inside else self.begin

    def room(self, stretch: float = 1.0) -> float:
        """What its sign and label take."""
        return stretch * (LABEL_SHARE + CHARACTER_SHARE * len(self.label))

    def compute_extent(self, stretch: float = 1.0) -> tuple[float, float]:
        """From where to where the bar and its label reach."""
        if self.before:
            return self.begin - self.room(stretch), self.end
        return self.begin, max(self.end, self.label_begin + self.room(stretch))


def arrange_in_rows(bars: Iterable[Bar]) -> list[Bar]:
    """The bars in rows, for a wide screen and for a phone."""
    bars = list(bars)
    rows = _rows(bars, 1.0, MOST_ROWS)
    phone_rows = _rows(bars, PHONE_STRETCH, MOST_PHONE_ROWS)
    spaces, phone_spaces = _spaces(bars, rows, 1.0), _spaces(bars, phone_rows, PHONE_STRETCH)
    placed = zip(bars, rows, phone_rows, spaces, phone_spaces, strict=True)
    return [
        replace(bar, row=row, phone_row=phone_row, space=space, phone_space=phone_space)
        for bar, row, phone_row, space, phone_space in placed
    ]


def _rows(bars: Sequence[Bar], stretch: float, most: int) -> list[int]:
    """A row each, so that none stands over another or its label; what doesn't fit shares the last."""
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


def _spaces(bars: Sequence[Bar], rows: Sequence[int], stretch: float) -> list[float]:
    """What each label may take at most: a plot is as wide as the screen has it, and characters are not all
    as wide, so the page cuts a label there, whatever was estimated.
    """
    spaces = [0.0] * len(bars)
    for row in set(rows):
        places = sorted(
            (place for place in range(len(bars)) if rows[place] == row), key=lambda p: bars[p].begin
        )
        before: int | None = None
        for place in [*places, None]:
            edge = _edge(bars, before, place, stretch)
            if before is not None and not bars[before].before:
                spaces[before] = max(0.0, edge - bars[before].label_begin)
            if place is not None and bars[place].before:
                spaces[place] = max(0.0, bars[place].begin - edge)
            before = place
    return spaces


def _edge(bars: Sequence[Bar], left: int | None, right: int | None, stretch: float) -> float:
    """Where the label of one bar must have ended, and that of the next may begin."""
    if right is None:
        return 1.0
    own = bars[right].begin - (bars[right].room(stretch) if bars[right].before else 0.0)
    if left is None or not bars[right].before:
        return max(0.0, own)
    # In a row that is shared the bar on the left may end behind where the one on the right begins.
    return min(bars[right].begin, max(bars[left].end, own))


def height(rows: Iterable[int]) -> int:
    """How many rows a lane has: one, when nothing is in it."""
    return max(rows, default=0) + 1
