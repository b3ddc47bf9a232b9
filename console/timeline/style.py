"""The style sheets within an exported page, since it may be opened without a console."""

from functools import cache
from pathlib import Path

from django.contrib.staticfiles import finders

SHEETS = ("css/tokens.css", "css/frame.css", "css/components.css", "css/timeline.css")


@cache
def style_sheet() -> str:
    return "\n".join(_read_style_sheet(name) for name in SHEETS)


def _read_style_sheet(name: str) -> str:
    path = finders.find(name)
    if path is None:
        raise FileNotFoundError(f"static/{name} is missing.")
    return Path(path).read_text()
