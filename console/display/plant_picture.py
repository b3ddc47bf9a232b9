"""The plant at an instant as a picture, 1200 by 630 pixels, as chats show next to a link."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT, MARGIN = 1200, 630, 56
PAPER, INK, FAINT, LINE = "#ffffff", "#1a2027", "#566270", "#d5dae1"
# The colors of static/css/tokens.css, in its light theme.
SEVERITY_COLOURS = {"well": "#1b7f48", "notice": "#566270", "warning": "#a05f00", "critical": "#c22f28"}
CHART_TOP, CHART_BOTTOM = 400, 570
MAX_LINES, MAX_CHARACTERS = 2, 300  # more would not fit, and is not measured


@dataclass(frozen=True, kw_only=True)
class PlantCard:
    """The contents of the picture.

    tiles: (name, value with its unit). rates: events/s, of equal steps until the instant, None if nothing was measured;
    about: what the rates belong to.
    """

    title: str
    severity: str
    state: str
    sentence: str
    tiles: Sequence[tuple[str, str]]
    rates: Sequence[float | None]
    about: str


def render_png(card: PlantCard) -> bytes:
    picture = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    draw = ImageDraw.Draw(picture)
    draw.text((MARGIN, 44), card.title[:MAX_CHARACTERS], fill=FAINT, font=_load_font(26))
    colour = SEVERITY_COLOURS.get(card.severity, FAINT)
    draw.ellipse((MARGIN, 103, MARGIN + 28, 131), fill=colour)
    draw.text((MARGIN + 44, 90), card.state, fill=INK, font=_load_font(44))
    for row, line in enumerate(_wrap_text(draw, card.sentence)):
        draw.text((MARGIN, 160 + 40 * row), line, fill=INK, font=_load_font(30))
    _draw_tiles(draw, card.tiles)
    _draw_rates(draw, card.rates, card.about)
    stored = io.BytesIO()
    picture.save(stored, "PNG", optimize=True)
    return stored.getvalue()


def _load_font(pixels: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(pixels)


def _wrap_text(draw: ImageDraw.ImageDraw, text: str) -> list[str]:
    """Return the text wrapped; text that does not fit ends in three dots."""
    font, lines = _load_font(30), [""]
    for word in text[:MAX_CHARACTERS].split():
        longer = f"{lines[-1]} {word}".strip()
        if draw.textlength(longer, font) <= WIDTH - 2 * MARGIN:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"{lines[MAX_LINES - 1]} …"]
    while draw.textlength(lines[-1], font) > WIDTH - 2 * MARGIN and len(lines[-1]) > 2:
        lines[-1] = f"{lines[-1][:-2].rstrip()}…"
    return lines


def _draw_tiles(draw: ImageDraw.ImageDraw, tiles: Sequence[tuple[str, str]]) -> None:
    each = (WIDTH - 2 * MARGIN) / max(1, len(tiles))
    for place, (name, value) in enumerate(tiles):
        left = MARGIN + place * each
        draw.text((left, 266), name, fill=FAINT, font=_load_font(22))
        draw.text((left, 296), value, fill=INK, font=_load_font(36))


def _draw_rates(draw: ImageDraw.ImageDraw, rates: Sequence[float | None], about: str) -> None:
    draw.line((MARGIN, CHART_BOTTOM, WIDTH - MARGIN, CHART_BOTTOM), fill=LINE, width=2)
    draw.text((MARGIN, 364), about, fill=FAINT, font=_load_font(22))
    highest = max((rate for rate in rates if rate is not None), default=0.0)
    if highest <= 0 or len(rates) < 2:
        return
    step = (WIDTH - 2 * MARGIN) / (len(rates) - 1)
    points = [
        None if rate is None else (MARGIN + place * step, CHART_BOTTOM - rate / highest * (CHART_BOTTOM - CHART_TOP))
        for place, rate in enumerate(rates)
    ]
    for one, other in pairwise(points):
        if one is not None and other is not None:  # no line where nothing was measured
            draw.line((*one, *other), fill=INK, width=3)
