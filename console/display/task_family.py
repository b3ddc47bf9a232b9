"""The place of a task in its chain, group, or chord, as a drawing: a column for each generation.

Celery's events name the parent and the root of a task. Siblings are tasks with the same parent.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workers.task_history.record import TaskRecord
from workers.task_history.search import Family

MAX_DRAWN = 6  # tasks of a column
MAX_LABEL = 21
BOX_WIDTH, BOX_HEIGHT, ROW, COLUMN, MARGIN = 192, 40, 52, 228, 4


@dataclass(frozen=True, kw_only=True)
class FamilyBox:
    """A task of the drawing, or the number of tasks that are left out; x, y: of its upper left corner."""

    x: int
    y: int
    label: str
    state: str
    is_shown: bool  # the task of the page

    @property
    def text_x(self) -> int:
        return self.x + 28

    @property
    def sign_x(self) -> int:
        return self.x + 14

    @property
    def middle(self) -> int:
        return self.y + BOX_HEIGHT // 2

    @property
    def end(self) -> int:
        return self.x + BOX_WIDTH


@dataclass(frozen=True, kw_only=True)
class FamilyLine:
    """A line from a task to one that it started; dashed: there may be others between them."""

    path: str
    is_dashed: bool


@dataclass(frozen=True, kw_only=True)
class FamilyDrawing:
    """Boxes and lines in a rectangle of this size."""

    width: int
    height: int
    box_width: int
    box_height: int
    boxes: Sequence[FamilyBox]
    lines: Sequence[FamilyLine]


def draw_family(record: TaskRecord, family: Family) -> FamilyDrawing | None:
    """Return the drawing of a task and the tasks around it; None if it has no relatives."""
    columns = [column for column in _list_columns(record, family) if column]
    if len(columns) < 2 and not family.siblings:
        return None
    height = MARGIN * 2 + ROW * max(len(column) for column in columns) - (ROW - BOX_HEIGHT)
    placed = [_place_column(number, column, height, record) for number, column in enumerate(columns)]
    shows_root = family.root is not None and (family.parent is None or family.root.id != family.parent.id)
    is_gapped = shows_root and bool(family.parent is not None and family.parent.parent != record.root)
    return FamilyDrawing(
        width=MARGIN * 2 + COLUMN * (len(columns) - 1) + BOX_WIDTH,
        height=height,
        box_width=BOX_WIDTH,
        box_height=BOX_HEIGHT,
        boxes=[box for column in placed for box in column],
        lines=list(_iterate_lines(placed, is_gapped)),
    )


def _list_columns(record: TaskRecord, family: Family) -> Iterator[list[TaskRecord | int]]:
    """Yield the generations, the oldest first. A number stands for tasks that are left out."""
    if family.root is not None and (family.parent is None or family.root.id != family.parent.id):
        yield [family.root]
    yield [family.parent] if family.parent is not None else []
    yield _shorten([record, *family.siblings])
    yield _shorten(family.children)


def _shorten(records: Sequence[TaskRecord]) -> list[TaskRecord | int]:
    more = len(records) - MAX_DRAWN
    return [*records[:MAX_DRAWN], more] if more > 0 else list(records)


def _place_column(number: int, column: Sequence[TaskRecord | int], height: int, shown: TaskRecord) -> list[FamilyBox]:
    """Return the boxes of a column, in the middle of the height."""
    top = (height - ROW * len(column) + ROW - BOX_HEIGHT) // 2
    x = MARGIN + COLUMN * number
    return [
        FamilyBox(
            x=x,
            y=top + ROW * place,
            label=f"{member:,} more" if isinstance(member, int) else _cut(member.name or member.id),
            state="" if isinstance(member, int) else member.state,
            is_shown=member is shown,
        )
        for place, member in enumerate(column)
    ]


def _cut(name: str) -> str:
    """Return the end of a long name: the beginning is the package."""
    return name if len(name) <= MAX_LABEL else f"…{name[1 - MAX_LABEL :]}"


def _iterate_lines(columns: Sequence[Sequence[FamilyBox]], is_gapped: bool) -> Iterator[FamilyLine]:
    """Yield the lines from the one task of a column that has children, to all of the next column."""
    for number, (earlier, later) in enumerate(itertools.pairwise(columns)):
        parent = next((box for box in earlier if box.is_shown), earlier[0])
        for box in later:
            turn = (parent.end + box.x) // 2
            path = f"M{parent.end} {parent.middle}C{turn} {parent.middle} {turn} {box.middle} {box.x} {box.middle}"
            yield FamilyLine(path=path, is_dashed=is_gapped and number == 0)
