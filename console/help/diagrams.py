"""Diagrams in Markdown: fenced blocks of the language `diagram`, drawn as SVG.

    ```diagram
    producers -> containers: points
    containers -> workers
    ```

Each line is an arrow with an optional label. A box stands right of every box that leads to it; an arrow that leads back
is drawn below. Colors come from the page (`currentColor`), so a diagram suits both themes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

FENCE = re.compile(r"^```diagram\n(.*?)^```$", re.M | re.S)
ARROW = re.compile(r"^(?P<source>(?:(?! -> )[^:])+) -> (?P<target>(?:(?! -> )[^:])+)(?:: (?P<label>.+))?$")
CHARACTER, LINE = 7.2, 18  # px of the font
PADDING, GAP, ROW = 12, 34, 74  # px


@dataclass(frozen=True)
class Arrow:
    """An arrow between two boxes."""

    source: str
    target: str
    label: str = ""


@dataclass(frozen=True)
class Box:
    """A box with its place, in px."""

    name: str
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        """Return the vertical middle."""
        return self.y + 18


def parse_arrows(text: str) -> tuple[Arrow, ...]:
    """Read the lines of a diagram. Raise ValueError naming the line that is no arrow."""
    arrows = []
    for line in filter(None, map(str.strip, text.splitlines())):
        match = ARROW.match(line)
        if match is None:
            raise ValueError(f"a diagram must have lines such as 'a -> b: label', not {line!r}")
        arrows.append(Arrow(match["source"], match["target"], match["label"] or ""))
    return tuple(arrows)


def rank_boxes(arrows: Sequence[Arrow]) -> dict[str, int]:
    """Return the column of each box: one more than the rightmost box that leads to it."""
    order = list(dict.fromkeys(name for arrow in arrows for name in (arrow.source, arrow.target)))
    ranks = dict.fromkeys(order, 0)
    forward = [arrow for arrow in arrows if order.index(arrow.source) < order.index(arrow.target)]
    for _ in order:
        for arrow in forward:
            ranks[arrow.target] = max(ranks[arrow.target], ranks[arrow.source] + 1)
    return ranks


def place_boxes(arrows: Sequence[Arrow]) -> dict[str, Box]:
    """Place the boxes column by column, with room for the labels between them."""
    ranks = rank_boxes(arrows)
    columns = [[name for name in ranks if ranks[name] == rank] for rank in range(max(ranks.values()) + 1)]
    tallest = max(map(len, columns))
    boxes, x = {}, 0.0
    for rank, names in enumerate(columns):
        width = max(len(name) for name in names) * CHARACTER + 2 * PADDING
        top = (tallest - len(names)) * ROW / 2
        for row, name in enumerate(names):
            boxes[name] = Box(name, x, top + row * ROW + 18, width)
        labels = [arrow.label for arrow in arrows if ranks[arrow.source] == rank]
        x += width + max([GAP, *(len(label) * CHARACTER + 16 for label in labels)])
    return boxes


def draw(text: str) -> str:
    """Return the SVG of a diagram's text."""
    arrows = parse_arrows(text)
    boxes = place_boxes(arrows)
    width = max(box.x + box.width for box in boxes.values()) + 2
    height = max(box.y for box in boxes.values()) + 60 + (40 if _has_back(arrows, boxes) else 0)
    sentence = "; ".join(f"{arrow.source} to {arrow.target}" for arrow in arrows)
    parts = [
        f'<svg class="diagram" role="img" aria-label="{escape(sentence, quote=True)}" width="{width:.0f}"'
        f' height="{height:.0f}" viewBox="-1 0 {width:.0f} {height:.0f}" fill="none" stroke="currentColor">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
        ' orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor" stroke="none"/></marker></defs>',
    ]
    parts += [_draw_arrow(arrow, boxes, height) for arrow in arrows]
    parts += [
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="36" rx="6"/>'
        f'<text x="{box.x + box.width / 2:.0f}" y="{box.middle + 4:.0f}" text-anchor="middle"'
        f' fill="currentColor" stroke="none" font-size="13">{escape(box.name)}</text>'
        for box in boxes.values()
    ]
    return "".join([*parts, "</svg>"])


def _has_back(arrows: Sequence[Arrow], boxes: dict[str, Box]) -> bool:
    return any(boxes[arrow.target].x <= boxes[arrow.source].x for arrow in arrows)


def _draw_arrow(arrow: Arrow, boxes: dict[str, Box], height: float) -> str:
    source, target = boxes[arrow.source], boxes[arrow.target]
    if target.x <= source.x:
        start, end, low = source.x + source.width / 2, target.x + target.width / 2, height - 18
        path = f"M{start:.0f} {source.y + 36:.0f}V{low:.0f}H{end:.0f}V{target.y + 36:.0f}"
        x, y = (start + end) / 2, low - 5
    else:
        start, end = source.x + source.width, target.x
        half = (start + end) / 2
        path = f"M{start:.0f} {source.middle:.0f}C{half:.0f} {source.middle:.0f} {half:.0f} {target.middle:.0f}"
        path += f" {end:.0f} {target.middle:.0f}"
        x, y = half, (source.middle + target.middle) / 2 - 6
    label = (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle" fill="currentColor" stroke="none" font-size="12"'
        f' opacity=".75">{escape(arrow.label)}</text>'
    )
    return f'<path d="{path}" marker-end="url(#arrow)"/>{label if arrow.label else ""}'


class DiagramFences(Preprocessor):
    """Replaces diagram fences by their pictures."""

    def run(self, lines: list[str]) -> list[str]:
        """Return the lines with the pictures in place."""
        text = FENCE.sub(lambda fence: self.md.htmlStash.store(draw(fence[1])) + "\n", "\n".join(lines))
        return text.split("\n")


class Diagrams(Extension):
    """The Markdown extension, for Help and for the site."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (its name)
        """Register the fences before those of other code."""
        md.preprocessors.register(DiagramFences(md), "weir-diagrams", 30)


def makeExtension(**options: object) -> Diagrams:  # noqa: N802 (its name)
    """Return the extension by the module's name, as mkdocs.yml gives it."""
    return Diagrams(**options)
