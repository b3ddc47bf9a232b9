"""Days (UTC) in the names of folders and files: `day=2026-11-20`."""

from collections.abc import Iterable
from pathlib import Path

from common import checks


def is_day(text: str) -> bool:
    """Return whether the text is a day in our format.

    Other names may exist beside the days: a copy, or a folder that a person renamed.
    """
    return checks.DAY.accepts(text) and checks.DAY.read(text) == text


def list_days(paths: Iterable[Path], suffix: str = "") -> list[str]:
    """List the days in the names of paths, each once, in order; other names are left out."""
    days = {path.name.removeprefix("day=").removesuffix(suffix) for path in paths}
    return sorted(filter(is_day, days))
