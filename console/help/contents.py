"""The contents of the documentation and their order: the tree of docs/ is its table of contents.

A folder of docs/ is a part; a folder in it is a group. Pages are sorted in the order in which the part's index.md links
them; those it does not link follow by name. The console's Help and the built site show this order under the same
addresses.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings

from console.help import reference

PARTS = ("start", "operate", "extend", "understand", "reference")
INDEX = "index.md"
LINK = re.compile(r"\]\(([^)#\s]+\.md)[^)]*\)")


@dataclass(frozen=True)
class HelpPage:
    """A page as written. `source`: its file, relative to docs/."""

    source: str
    text: str

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0].removeprefix("# ")

    @property
    def address(self) -> str:
        """Return its address below /help/, and in the site: "operate/alerts/node-lost/"."""
        stem = self.source.removesuffix(".md")
        stem = "" if stem == "index" else stem.removesuffix("/index")
        return f"{stem}/" if stem else ""

    def list_links(self) -> list[str]:
        """Return the sources of the pages it links, in its order."""
        folder = posixpath.dirname(self.source)
        return [posixpath.normpath(posixpath.join(folder, link)) for link in LINK.findall(self.text)]


@dataclass(frozen=True)
class HelpGroup:
    """Pages under one heading; the heading links to the first."""

    title: str
    pages: tuple[HelpPage, ...]
    groups: tuple["HelpGroup", ...] = ()

    def list_pages(self) -> Iterator[HelpPage]:
        yield from self.pages
        for group in self.groups:
            yield from group.list_pages()


@cache
def load_pages() -> dict[str, HelpPage]:
    """Return every page by its source: the files of docs/, and the pages of `reference`."""
    folder = Path(settings.BASE_DIR) / "docs"
    written = {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in folder.rglob("*.md")}
    made = {**written, **reference.build_pages()}
    return {source: HelpPage(source, text) for source, text in sorted(made.items())}


@cache
def list_pictures() -> dict[str, Path]:
    """Return the pictures of docs/ by their path in it. No other files are read for an address."""
    folder = Path(settings.BASE_DIR) / "docs"
    return {file.relative_to(folder).as_posix(): file for file in folder.rglob("*.png")}


@cache
def index_by_address() -> dict[str, HelpPage]:
    return {page.address: page for page in load_pages().values()}


@cache
def build_contents() -> tuple[HelpGroup, ...]:
    """Return the table of contents: the parts, then the pages in docs/ itself, its index first."""
    pages_by_source = load_pages()
    loose = order_pages(pages_by_source[INDEX], (page for page in pages_by_source.values() if "/" not in page.source))
    return (*(build_part(name) for name in PARTS), HelpGroup(pages_by_source[INDEX].title, tuple(loose)))


def build_part(name: str) -> HelpGroup:
    """Return a part: its own pages, and a group for each folder in it."""
    pages_of_part = [page for page in load_pages().values() if page.source.startswith(f"{name}/")]
    index = load_pages()[f"{name}/{INDEX}"]
    own = order_pages(index, (page for page in pages_of_part if page.source.count("/") == 1))
    folders = dict.fromkeys(page.source.split("/")[1] for page in pages_of_part if page.source.count("/") == 2)
    places = {source: at for at, source in enumerate(index.list_links())}
    groups = [group(f"{name}/{folder}", pages_of_part) for folder in folders]
    groups.sort(key=lambda group_: places.get(group_.pages[0].source, len(places)))
    return HelpGroup(index.title, tuple(own), tuple(groups))


def group(folder: str, listed: Iterable[HelpPage]) -> HelpGroup:
    index = load_pages()[f"{folder}/{INDEX}"]
    own = [page for page in listed if page.source.startswith(f"{folder}/")]
    return HelpGroup(index.title, tuple(order_pages(index, own)))


def order_pages(index: HelpPage, listed: Iterable[HelpPage]) -> list[HelpPage]:
    """Sort pages: the index, its links in their order, then the others by title."""
    places = {source: at for at, source in enumerate([index.source, *dict.fromkeys(index.list_links())])}
    return sorted(listed, key=lambda page: (places.get(page.source, len(places)), page.title))


def search(words: str) -> list[HelpPage]:
    """Return the pages that contain all these words: those with one in the title first, then by frequency."""
    wanted = words.casefold().split()
    scored = [(_score(page, wanted), page) for page in load_pages().values()]
    return [page for score, page in sorted(scored, key=lambda hit: (-hit[0], hit[1].title)) if score]


def _score(page: HelpPage, wanted: list[str]) -> int:
    text, title = page.text.casefold(), page.title.casefold()
    if not wanted or not all(word in text for word in wanted):
        return 0
    return sum(text.count(word) + 100 * (word in title) for word in wanted)


def build_navigation() -> list[Any]:
    """Return the table of contents for MkDocs."""
    *folders, loose = build_contents()
    first, *others = [page.source for page in loose.pages]
    return [{"Weir": first}, *(_build_navigation_entry(folder) for folder in folders), *others]


def _build_navigation_entry(of: HelpGroup) -> dict[str, list[Any]]:
    return {of.title: [*(page.source for page in of.pages), *(_build_navigation_entry(group_) for group_ in of.groups)]}
