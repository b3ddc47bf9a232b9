"""Each colour has one place, with its light and its dark form: static/css/tokens.css."""

import re
from pathlib import Path

STATIC = Path(__file__).resolve().parents[2] / "static"
TOKENS = STATIC / "css/tokens.css"
COLOUR = re.compile(
    r"#[0-9a-f]{3,8}\b|\b(?:rgb|hsl|hwb|lab|lch|oklab|oklch|color)a?\("
    r"|(?<![\w.#-])(?:black|white|gray|grey|silver|red|green|blue|yellow|orange|purple|navy|teal)(?![\w-])",
    re.IGNORECASE,
)


def colours(text: str, kind: str) -> list[str]:
    """The colours that a file names: in style sheets in values, in scripts in texts; comments aside."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    places = r":([^:;{}]*)[;}]" if kind == ".css" else r"[\"'`]([^\"'`]*)[\"'`]"
    return [found.group() for value in re.findall(places, text) for found in COLOUR.finditer(value)]


def test_style_sheets_and_scripts_take_their_colours_from_the_tokens():
    named = {
        path.relative_to(STATIC).as_posix(): found
        for path in sorted({*STATIC.glob("css/*.css"), *STATIC.glob("js/**/*.js")} - {TOKENS})
        if (found := colours(path.read_text(encoding="utf-8"), path.suffix))
    }
    assert named == {}, "give them a name in tokens.css and use var(--name)"


def test_a_token_s_colours_stand_side_by_side():
    """One palette: a token is defined once, and by `light-dark` where the themes differ."""
    names = re.findall(r"^\s*(--[\w-]+):", TOKENS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(names) == sorted(set(names))
    assert names
