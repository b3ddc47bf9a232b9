"""The colors of the tokens can be read by everybody: contrast, and series apart under every color vision."""

import math
import re
from itertools import combinations

import pytest

from tests.house.test_colours import TOKENS

THEMES = ("light", "dark")
TEXTS = ("text", "muted", "accent", "idle", "normal", "busy", "toobusy")
SERIES = tuple(f"series-{number}" for number in range(1, 5))
GROUNDS = ("ground", "surface", "raised", "critical")
EDGES = ("field-line",)  # edges of fields, and bars
# Viénot, Brettel and Mollon (1999), and Machado et al. (2009) for tritanopia, on linear RGB.
VISIONS = {
    "normal vision": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
WHITE = (0.95047, 1.0, 1.08883)


def tokens(theme):
    """Name → linear RGB."""
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", TOKENS.read_text(encoding="utf-8"))
    return {name: linear((light, dark)[THEMES.index(theme)]) for name, light, dark in pairs}


def linear(text):
    shares = (int(text[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return tuple(share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)


def contrast(one, other):
    """By WCAG 2."""
    bright, dim = sorted((0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (one, other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def seen_as(color, vision):
    return tuple(min(1.0, max(0.0, sum(a * b for a, b in zip(row, color, strict=True)))) for row in VISIONS[vision])


def lab(color):
    r, g, b = color
    xyz = (
        0.4124564 * r + 0.3575761 * g + 0.1804375 * b,
        0.2126729 * r + 0.7151522 * g + 0.0721750 * b,
        0.0193339 * r + 0.1191920 * g + 0.9503041 * b,
    )
    x, y, z = (
        share ** (1 / 3) if share > 216 / 24389 else (24389 / 27 * share + 16) / 116
        for share in (value / white for value, white in zip(xyz, WHITE, strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one, other):
    """ΔE2000 (Sharma, Wu and Dalal, 2005)."""
    (l1, a1, b1), (l2, a2, b2) = lab(one), lab(other)
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    stretch = 1 + 0.5 * (1 - math.sqrt(mean**7 / (mean**7 + 25**7)))
    c1, c2 = math.hypot(a1 * stretch, b1), math.hypot(a2 * stretch, b2)
    h1, h2 = (math.degrees(math.atan2(b, a * stretch)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    hue = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    middle = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    weight = (
        1
        - 0.17 * math.cos(math.radians(middle - 30))
        + 0.24 * math.cos(math.radians(2 * middle))
        + 0.32 * math.cos(math.radians(3 * middle + 6))
        - 0.20 * math.cos(math.radians(4 * middle - 63))
    )
    by_light = 1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2)
    by_chroma, by_hue = 1 + 0.045 * chroma, 1 + 0.015 * chroma * weight
    bend = (
        -2
        * math.sqrt(chroma**7 / (chroma**7 + 25**7))
        * math.sin(math.radians(60 * math.exp(-(((middle - 275) / 25) ** 2))))
    )
    parts = ((l2 - l1) / by_light, (c2 - c1) / by_chroma, hue / by_hue)
    return math.sqrt(sum(part**2 for part in parts) + bend * parts[1] * parts[2])


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("names", "least"), [(TEXTS + SERIES, 4.5), (EDGES, 3.0)])
def test_a_color_stands_out_from_every_ground(theme, names, least):
    colors = tokens(theme)
    weak = {
        (name, ground): round(found, 2)
        for name in names
        for ground in GROUNDS
        if (found := contrast(colors[name], colors[ground])) < least
    }
    assert weak == {}


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("theme", THEMES)
def test_every_two_series_differ_for_every_color_vision(theme, vision):
    colors = {name: seen_as(tokens(theme)[name], vision) for name in SERIES}
    alike = {
        (one, other): round(found, 1)
        for one, other in combinations(SERIES, 2)
        if (found := difference(colors[one], colors[other])) < 15.0
    }
    assert alike == {}


def test_the_difference_is_that_of_its_reference_data():
    """Two pairs of the paper's table, through the inverse of `lab`."""
    assert difference(linear("#ffffff"), linear("#000000")) == pytest.approx(100.0, abs=0.1)
    assert difference(linear("#ff0000"), linear("#00ff00")) == pytest.approx(86.6, abs=0.2)
    assert difference(linear("#6246ad"), linear("#6246ad")) == 0.0
