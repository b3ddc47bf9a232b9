"""The charts' library as a static file: npm's basic bundle if installed, else the whole library.

The basic bundle (lines and bars) has a third of the size; `bin/node-tools` installs it from package-lock.json. Without
npm, the file of the Python package `plotly` draws the same charts.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly
from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage
from django.core.files.storage import FileSystemStorage

NAME = "plotly.min.js"  # under plotly/, whichever of the two it is
BASIC = Path("node_modules/plotly.js-basic-dist-min/plotly-basic.min.js")


def find_plotly_script() -> Path:
    """Return the file that pages load."""
    basic = Path(settings.BASE_DIR) / BASIC
    return basic if basic.exists() else Path(plotly.__file__).parent / "package_data" / NAME


class OneFile(FileSystemStorage):
    """A storage with the single file `NAME`."""

    prefix = "plotly"

    def path(self, name: str) -> str:
        return str(find_plotly_script()) if name == NAME else super().path(name)


class StaticPlotly(BaseFinder):
    """Finds `plotly/plotly.min.js`."""

    def check(self, **_: object) -> list[CheckMessage]:
        return []

    def find(self, path: str, find_all: bool = False, **_: object) -> Any:
        if path != f"{OneFile.prefix}/{NAME}":
            return []
        return [str(find_plotly_script())] if find_all else str(find_plotly_script())

    def list(self, ignore_patterns: object) -> Iterator[tuple[str, OneFile]]:
        yield NAME, OneFile(find_plotly_script().parent)
