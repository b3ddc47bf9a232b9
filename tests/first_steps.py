"""The ten first steps as README and the documentation write them."""

import re
from dataclasses import dataclass
from pathlib import Path

from django.urls import reverse

from console.navigation import MORE_PAGES, on_rail


@dataclass(frozen=True)
class Step:
    """commands: spans of code that a shell runs; pages: names in italics; buttons: names in bold but the title."""

    number: int
    title: str
    commands: tuple[str, ...]
    pages: tuple[str, ...]
    buttons: tuple[str, ...]

    def find_pages(self) -> dict[str, str]:
        """{label: address} of the pages that the step names. Raises KeyError for a page that does not exist."""
        addresses = {label: name for name, label, *_ in (*MORE_PAGES, *on_rail())}
        return {label: reverse(addresses[label]) for label in self.pages}


def read_steps(path: Path) -> dict[int, Step]:
    """The steps of a document by number."""
    text = path.read_text(encoding="utf-8")
    steps = {}
    for number, body in re.findall(r"^(\d+)\. (.+(?:\n   .+)*)", text, re.MULTILINE):
        joined = re.sub(r"\s+", " ", body)
        title, *buttons = re.findall(r"\*\*(.+?)\*\*", joined)
        code = re.findall(r"`([^`]+)`", joined)
        pages = re.findall(r"(?<!\*)\*([A-Z][^*]+)\*(?!\*)", joined)
        commands = tuple(span for span in code if " " in span)
        steps[int(number)] = Step(int(number), title.rstrip("."), commands, tuple(pages), tuple(buttons))
    return steps
